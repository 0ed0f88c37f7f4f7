package proxy

import (
	"sync/atomic"
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy/engine"
	"kubeproxy/registry"
)

// A listener is one port that at least one service claims. The first claim owns the port, the
// others wait in order. Its fields are guarded by the Proxier's mu, and those that a status reads by its
// view as well; owner by neither.
type listener struct {
	id     registry.NodePort
	claims claims
	owner  atomic.Pointer[engine.Claim] // the first claim, for the engine to read on every connection

	socket  engine.Socket // nil while the port cannot be opened, and then:
	err     error         // why not
	retryAt time.Time     // when it is tried again
	backoff time.Duration // how long the last wait was

	lacksRoom bool // there are no descriptors for it, or too many ports of the local range are open
	local     bool // it is open, and counted as one of the local range
}

// compareClaims orders the newcomers of one batch, and so all claims after a restart: the claim that is known for longest comes
// first, then namespace and name decide (D30). Claims of an earlier source come before those of a later one.
func compareClaims(a, b *engine.Claim) int {
	return registry.Precedence{Rank: a.Rank, Since: a.Since, Name: a.Key.Name}.Compare(
		registry.Precedence{Rank: b.Rank, Since: b.Since, Name: b.Key.Name})
}

// settleLocked makes the port what its claims say it should be, but does not open it. It is safe to repeat.
func (p *Proxier) settleLocked(l *listener) {
	if l.claims.n == 0 {
		p.closeLocked(l)
		return
	}
	owner, previous := l.claims.first, l.owner.Load()
	if previous != owner {
		l.owner.Store(owner)
		if l.socket != nil {
			l.socket.OwnerChanged()
			if owner.Key != previous.Key {
				glog.V(1).Infof("%s on %s takes over from %s", owner.Key, l.id, previous.Key)
			}
		}
		if owner.Waited {
			owner.Waited = false
			if note, ok := p.conflicts.Allow(aboutPort{l.id, owner.Key, true}); ok {
				glog.Infof("%s has %s at last%s", owner.Key, l.id, note)
			}
		}
	}
}

// closeLocked closes the socket of l and forgets l.
func (p *Proxier) closeLocked(l *listener) {
	p.view.Lock()
	delete(p.listeners, l.id)
	p.view.Unlock()
	delete(p.unopened, l.id)
	p.unclaimLocked(l.id)
	if l.socket == nil {
		return
	}
	if l.local {
		p.localOpen[l.id.Protocol]--
	}
	p.closeSocketLocked(l)
	p.own.Remove(l.id)
	glog.V(1).Infof("stopped listening on %s", l.id)
}
