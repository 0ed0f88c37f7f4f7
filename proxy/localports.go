package proxy

import (
	"time"

	"kubeproxy/registry"
)

// A listener in the local range takes away a port that the kernel could give to a connection. If services had all of them, no program of
// this machine could connect to anything. So services may have a quarter.

// localFreshFor is for how long the range is taken to stay as it was read.
const localFreshFor = time.Second

// readLocalRangeLocked reads the range, and counts the listeners in it anew if it has changed.
func (p *Proxier) readLocalRangeLocked() {
	if !p.localRead.IsZero() && time.Since(p.localRead) < localFreshFor {
		return
	}
	p.localRead = time.Now()
	now := p.readLocal()
	if now.equal(p.local) {
		return
	}
	p.local, p.localOpen = now, [2]int{}
	for id, l := range p.listeners {
		if l.local = l.socket != nil && now.contains(id.Number); l.local {
			p.localOpen[id.Protocol]++
		}
	}
}

// localShareLocked reports why a port is not to be opened beside the others of the local range that are open; nil: it may be.
func (p *Proxier) localShareLocked(id registry.NodePort) error {
	if p.local.contains(id.Number) && p.localOpen[id.Protocol] >= p.local.most() {
		return &localShareError{p.local}
	}
	return nil
}
