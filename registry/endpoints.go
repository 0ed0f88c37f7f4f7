package registry

import (
	"cmp"
	"slices"
)

// Endpoints are the addresses behind one service, by the name of the port they serve; "" is the
// unnamed port. Each list is in the order of the record, without repeats. No list is empty, no port is
// named twice, and they are sorted by their names: most records have one, for which a map is large.
type Endpoints struct {
	Name
	ByPort  []PortAddrs
	Weights Weights // see [Weights.Canonical]
}

// PortAddrs are the addresses that serve one port.
type PortAddrs struct {
	Port   string
	Addrs  Addrs
	Places Places // of Addrs, for the node that has read the record
}

func (p PortAddrs) compareTo(port string) int { return cmp.Compare(p.Port, port) }

// Of gives the addresses that serve a port; none if it is not named.
func (e *Endpoints) Of(port string) Addrs { return e.Find(port).Addrs }

// Find gives the addresses that serve a port, and their places.
func (e *Endpoints) Find(port string) PortAddrs {
	if at, ok := slices.BinarySearchFunc(e.ByPort, port, PortAddrs.compareTo); ok {
		return e.ByPort[at]
	}
	return PortAddrs{Port: port}
}

// Equal reports whether two endpoints records say the same, order included.
func (e *Endpoints) Equal(f *Endpoints) bool {
	if e == nil || f == nil {
		return e == f
	}
	return e.Name == f.Name && e.Weights == f.Weights && slices.Equal(e.ByPort, f.ByPort)
}
