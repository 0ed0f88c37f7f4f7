package rotation

import (
	"slices"
	"sync"
	"time"

	"kubeproxy/registry"
)

// Departed are endpoints that have left their rotations, and may have clients.
type departed struct {
	mu     sync.Mutex // guards the fields below
	all    []*Endpoint
	enough int // of them, to look which can be forgotten
}

// lateClients is how long after an endpoint has left a client may still reach it that had chosen it before: a look-up and a dial.
const lateClients = 30 * time.Second

// add notes that an endpoint has left.
func (d *departed) add(e *Endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all = append(d.all, e); len(d.all) > d.enough {
		d.all = slices.DeleteFunc(d.all, func(e *Endpoint) bool { return e.stats().active() == 0 && e.Lifetime().Ago() > lateClients })
		d.enough = 2*len(d.all) + 16 // so that a look at all of them is worth it
	}
}

// A ClientCount counts the connections, sessions and dials of endpoints: of one that is looked at more than once, the most.
type ClientCount map[*Endpoint]int64

func (c ClientCount) add(e *Endpoint) {
	if x := e.known.Load(); x != nil {
		c[e] = max(c[e], x.active())
	}
}

// CountClients counts the clients of those endpoints of a rotation that match.
func (r *Rotation) CountClients(c ClientCount, match registry.AddrMatch) {
	for _, e := range r.set.Load().endpoints { // one that sleeps has none
		if match.Matches(e.Addr) {
			c.add(e)
		}
	}
}

// CountClientsOfDeparted counts the clients of those endpoints of a service, or with the zero name of all, that match and have left their rotations.
func (r *Rules) CountClientsOfDeparted(c ClientCount, service registry.Name, match registry.AddrMatch) {
	r.departed.mu.Lock()
	defer r.departed.mu.Unlock()
	for _, e := range r.departed.all {
		if ((service == registry.Name{}) || e.Rotation.Key.Name == service) && match.Matches(e.Addr) {
			c.add(e)
		}
	}
}
