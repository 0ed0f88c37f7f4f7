package proxy

import (
	"fmt"
	"slices"
)

// A localRange is the range of ports that the kernel takes the local ports of connections from
// (net.ipv4.ip_local_port_range), but for the ports that are never given to a connection (net.ipv4.ip_local_reserved_ports). The zero value
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
