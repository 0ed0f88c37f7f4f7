package proxy

import "time"

// probeHeld looks at the held ports that services claim, and opens those that have been free for long enough. It returns when to look
// again; false: there is none to look at.
func (p *Proxier) probeHeld() (next time.Time, ok bool) {
	p.mu.Lock()
	ids, own, next := p.gate.Held()
	taken := p.stage.isTakenOver()
	p.mu.Unlock()
	if len(ids) == 0 || taken {
		return time.Time{}, false
	}
	if time.Now().Before(next) {
		return next, true
	}
	inUse := p.gate.System.InUse(p.cfg.BindAddress, ids, own) // takes time, and no lock is held
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped || p.stage.isTakenOver() {
		return time.Time{}, false
	}
	free, next := p.gate.Looked(ids, inUse)
	due := make([]*listener, 0, len(free))
	for _, id := range free {
		due = append(due, p.listeners[id])
	}
	p.openLocked(inOrder(due))
	return next, true
}
