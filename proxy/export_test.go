package proxy

import "time"

// TakeHeldPortsAfter has p take a port that another program held once it has been free for so long, and look as often.
func (p *Proxier) TakeHeldPortsAfter(free, every time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heldFor, p.probeEvery = free, every
}
