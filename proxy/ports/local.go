package ports

import (
	"fmt"
	"slices"
)

// A Range is the ports from First to Last, both included.
type Range struct{ First, Last uint16 }

// A LocalRange is the range of ports that the kernel takes the local ports of connections from
// (net.ipv4.ip_local_port_range), but for the ports that are never given to a connection (net.ipv4.ip_local_reserved_ports). The zero value
// is an unknown range, which holds no port.
type LocalRange struct {
	Range
	Reserved []Range // in order, none within another
}

// Contains reports whether a connection may be given a port.
func (r LocalRange) Contains(port uint16) bool {
	if port < r.First || port > r.Last || r.Last == 0 {
		return false
	}
	_, reserved := slices.BinarySearchFunc(r.Reserved, port, func(r Range, port uint16) int {
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
func (r LocalRange) most() int {
	n := int(r.Last) - int(r.First) + 1
	for _, x := range r.Reserved {
		n -= max(0, int(min(x.Last, r.Last))-int(max(x.First, r.First))+1)
	}
	return n / 4
}

func (r LocalRange) equal(s LocalRange) bool {
	return r.Range == s.Range && slices.Equal(r.Reserved, s.Reserved)
}

// A ShareError is why a port is not opened that would be one too many of the local range.
type ShareError struct{ Local LocalRange }

// Error says how many ports services may have, of which range, and what to do.
func (e *ShareError) Error() string {
	return fmt.Sprintf("services may have %d of the ports of net.ipv4.ip_local_port_range, %d-%d, a quarter, or connections would find none: "+
		"list it in net.ipv4.ip_local_reserved_ports, or change the range", e.Local.most(), e.Local.First, e.Local.Last)
}
