package proxy

import (
	"fmt"
	"slices"
	"time"

	"kubeproxy/registry"
)

// The kernel takes the local ports of connections from a range of ports (net.ipv4.ip_local_port_range). A listener takes one of them
// away. If services had all of them, no program of this machine could connect to anything.

// A localRange is that range, but for the ports that are never given to a connection (net.ipv4.ip_local_reserved_ports). The zero value
// is an unknown range, which holds no port.
type localRange struct {
	first, last uint16
	reserved    []PortRange // in order, none within another
}

// contains reports whether a connection may be given a port.
func (r localRange) contains(port uint16) bool {
	if port < r.first || port > r.last || r.last == 0 {
		return false
	}
	_, reserved := slices.BinarySearchFunc(r.reserved, port, func(r PortRange, port uint16) int {
		switch {
		case r.Last < port:
			return -1
		case r.First > port:
			return 1
		}
		return 0
	})
	return !reserved
}

// most returns how many of the ports services may have, by each protocol: a quarter.
func (r localRange) most() int {
	n := int(r.last) - int(r.first) + 1
	for _, x := range r.reserved {
		n -= max(0, int(min(x.Last, r.last))-int(max(x.First, r.first))+1)
	}
	return n / 4
}

func (r localRange) equal(s localRange) bool {
	return r.first == s.first && r.last == s.last && slices.Equal(r.reserved, s.reserved)
}

// A localShareError is why a port is not opened that would be one too many of the local range.
type localShareError struct{ localRange }

// Error says how many ports services may have, of which range, and what to do.
func (e *localShareError) Error() string {
	return fmt.Sprintf("services may have %d of the ports of net.ipv4.ip_local_port_range, %d-%d, a quarter, or connections would find none: "+
		"list it in net.ipv4.ip_local_reserved_ports, or change the range", e.most(), e.first, e.last)
}

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
