package proxy

import (
	"cmp"
	"maps"
	"slices"

	"kubeproxy/registry"
)

// A PortStatus tells how things stand with one port that services claim.
type PortStatus struct {
	Protocol registry.Protocol
	Port     uint16
	Owner    registry.PortKey
	Waiting  []registry.PortKey // whose claim comes next when the owner lets go, in order
	Err      error              // why the port is not open; nil when it is
}

// Status tells how things stand with every claimed port, in order.
func (p *Proxier) Status() []PortStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []PortStatus
	for _, id := range slices.SortedFunc(maps.Keys(p.listeners), portID.compare) {
		l := p.listeners[id]
		s := PortStatus{Protocol: id.protocol, Port: id.number, Owner: l.claims[0].key, Err: l.err}
		for _, c := range l.claims[1:] {
			s.Waiting = append(s.Waiting, c.key)
		}
		all = append(all, s)
	}
	return all
}

// compare orders ports by number, then by protocol.
func (id portID) compare(other portID) int {
	return cmp.Or(cmp.Compare(id.number, other.number), cmp.Compare(id.protocol, other.protocol))
}
