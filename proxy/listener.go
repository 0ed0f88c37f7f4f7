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

// How long to wait before a port that could not be opened is tried again. The first wait is short,
// since most often a program is just being replaced by another.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// compareClaims orders the newcomers of one batch, and so everybody after a restart: who was
// created first comes first, then namespace and name decide (D30).
func compareClaims(a, b *claim) int {
	return registry.Seniority{Created: a.created, Name: a.key.Name}.Compare(registry.Seniority{Created: b.created, Name: b.key.Name})
}

// find returns the position of a service's claim, or -1. A service claims a port at most once.
func (l *listener) find(name registry.Name) int {
	return slices.IndexFunc(l.claims, func(c *claim) bool { return c.key.Name == name })
}

// String names the port as the logs do.
func (id portID) String() string {
	return fmt.Sprintf("%s port %d", id.protocol, id.number)
}

// settleLocked makes the port what its claims say it should be. It is safe to repeat.
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
			glog.Infof("%s has %s at last", owner.key, l.id)
		}
	}
	if l.socket == nil {
		p.openLocked(l)
	}
}

// openLocked opens the socket of l, or sees to it that Run tries again later.
func (p *Proxier) openLocked(l *listener) {
	service := l.claims[0].key
	p.own.add(l.id) // before it is open: no endpoint may lead back to us
	s, err := p.engine.listen(l.id, &l.owner)
	if err == nil {
		if l.err != nil {
			glog.Infof("listening for %s on %s of %s at last", service, l.id, p.cfg.BindAddress)
		} else {
			glog.V(1).Infof("listening for %s on %s of %s", service, l.id, p.cfg.BindAddress)
		}
		l.socket, l.err, l.backoff = s, nil, 0
		return
	}
	p.own.remove(l.id)
	l.backoff = min(max(2*l.backoff, firstRetry), lastRetry)
	l.retryAt = time.Now().Add(l.backoff)
	if l.err == nil || l.err.Error() != err.Error() { // the same again is not news
		glog.Errorf("cannot listen for %s on %s: %v; trying again until it can", service, l.id, err)
	}
	l.err = err
	p.wakeRetries()
}

// closeLocked closes the socket of l and forgets l.
func (p *Proxier) closeLocked(l *listener) {
	delete(p.listeners, l.id)
	if l.socket == nil {
		return
	}
	l.socket.close()
	l.socket = nil
	p.own.remove(l.id)
	glog.V(1).Infof("stopped listening on %s", l.id)
}
