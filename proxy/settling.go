package proxy

import (
	"github.com/golang/glog"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
)

// settleLocked makes the port what its claims say it should be, but does not open it. Some claims of it have ended: their clients find the next
// owner from then on. It is safe to repeat.
func (p *Proxier) settleLocked(l *listener, ended []*engine.Claim) {
	if l.claims.n == 0 {
		p.end(ended)
		p.closeLocked(l)
		return
	}
	owner, previous := l.claims.first, l.owner.Load()
	l.owner.Store(owner)
	p.end(ended)
	if previous != owner {
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

// end ends the time of claims that a service makes no more.
func (p *Proxier) end(claims []*engine.Claim) {
	for _, c := range claims {
		if c.Lifetime != nil {
			c.Lifetime.End(p.cfg.RemovalOf(c.Terms), traffic.ServiceRemoved, 0)
		}
	}
}

// closeLocked closes the socket of l and forgets l.
func (p *Proxier) closeLocked(l *listener) {
	p.view.Lock()
	delete(p.listeners, l.id)
	p.view.Unlock()
	delete(p.unopened, l.id)
	p.gate.Unclaimed(l.id)
	if l.socket == nil {
		return
	}
	p.gate.Closed(l.id)
	p.closeSocketLocked(l)
	p.own.Remove(l.id)
	glog.V(1).Infof("stopped listening on %s", l.id)
}

// closeAllLocked closes every listener for good.
func (p *Proxier) closeAllLocked() {
	p.stopped = true
	if p.kernel != nil {
		p.kernel.Stop(p.stage != serves) // or its clients would have a port that is closed
	}
	for _, l := range p.listeners {
		p.closeLocked(l)
	}
	p.closeLeftoverLocked()
}
