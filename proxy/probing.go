package proxy

import (
	"time"

	"kubeproxy/registry"
)

// probeHeld looks at the held ports that services claim, and opens those that have been free for long enough. It returns when to look
// again; false: there is none to look at.
func (p *Proxier) probeHeld() (next time.Time, ok bool) {
	p.mu.Lock()
	var ids []registry.NodePort
	for id, h := range p.held {
		switch {
		case h.left.IsZero():
			ids = append(ids, id)
		case time.Since(h.left) >= heldMemory:
			delete(p.held, id)
		}
	}
	next = p.probeAt
	taken := p.stage.isTakenOver()
	p.mu.Unlock()
	if len(ids) == 0 || taken {
		return time.Time{}, false
	}
	if now := time.Now(); now.Before(next) {
		return next, true
	}
	inUse := p.probe(p.cfg.BindAddress, ids) // takes time, and no lock is held
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.probeAt = now.Add(p.cfg.HeldPortProbePeriod)
	var due []*listener
	for _, id := range ids {
		h, l := p.held[id], p.listeners[id]
		switch {
		case h == nil || l == nil || p.stopped || p.stage.isTakenOver(): // gone meanwhile
		case inUse[id]:
			h.freeSince = time.Time{}
		case h.freeSince.IsZero():
			h.freeSince = now
		case now.Sub(h.freeSince) >= p.cfg.HeldPortDelay:
			delete(p.held, id)
			due = append(due, l)
		}
	}
	p.openLocked(inOrder(due))
	return p.probeAt, true
}
