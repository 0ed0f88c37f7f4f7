package proxy

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// A listener is one port that at least one service claims. The first claim owns the port, the
// others wait in order. Its fields are guarded by the Proxier's mu, but for owner.
type listener struct {
	id     portID
	claims []*claim
	owner  atomic.Pointer[claim] // the first claim, for the engine to read on every connection

	socket  socket        // nil while the port cannot be opened, and then:
	err     error         // why not
	retryAt time.Time     // when it is tried again
	backoff time.Duration // how long the last wait was
}

// compareClaims orders the newcomers of one batch, and so everybody after a restart: who was
// created first comes first, then namespace and name decide (D30).
func compareClaims(a, b *claim) int {
	return registry.Seniority{Since: a.created, Name: a.key.Name}.Compare(registry.Seniority{Since: b.created, Name: b.key.Name})
}

// find returns the position of a service's claim, or -1. A service claims a port at most once.
func (l *listener) find(name registry.Name) int {
	return slices.IndexFunc(l.claims, func(c *claim) bool { return c.key.Name == name })
}

// String names the port as the logs do.
func (id portID) String() string {
	return fmt.Sprintf("%s port %d", id.protocol, id.number)
}

// settleLocked makes the port what its claims say it should be, but does not open it. It is safe to repeat.
func (p *Proxier) settleLocked(l *listener) {
	if len(l.claims) == 0 {
		p.closeLocked(l)
		return
	}
	owner, previous := l.claims[0], l.owner.Load()
	if previous != owner {
		l.owner.Store(owner)
		if l.socket != nil {
			l.socket.disown(previous)
			if owner.key != previous.key {
				glog.V(1).Infof("%s on %s takes over from %s", owner.key, l.id, previous.key)
			}
		}
		if owner.waited {
			owner.waited = false
			if note, ok := p.conflicts.ask(); ok {
				glog.Infof("%s has %s at last%s", owner.key, l.id, note)
			}
		}
	}
}

// closeLocked closes the socket of l and forgets l.
func (p *Proxier) closeLocked(l *listener) {
	delete(p.listeners, l.id)
	delete(p.unopened, l.id)
	if l.socket == nil {
		return
	}
	l.socket.close()
	l.socket = nil
	p.own.remove(l.id)
	glog.V(1).Infof("stopped listening on %s", l.id)
}
