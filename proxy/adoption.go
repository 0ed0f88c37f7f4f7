package proxy

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// An adoption finds the place of each connection and session of a predecessor among the claims and endpoints of this process. The
// registry may have changed: what belongs to a service or an endpoint that is not there any more is treated as if they were removed now, or when the predecessor
// removed them.
type adoption struct {
	proxier   *Proxier
	claims    map[claimKey]*engine.Claim
	endpoints map[*rotation.Rotation]map[registry.Addr]*rotation.Endpoint // those that are there
	left      map[leftKey]*rotation.Endpoint                              // those that have left their rotation
	owners    map[registry.ListenerID]*atomic.Pointer[engine.Claim]       // of ports without a claim
	departed  []*engine.Claim                                             // of services that have left their ports

	connections, sessions int
}

// A claimKey is one port of a service, and the number that clients know it by; as it is, or as it was before it was removed.
type claimKey struct {
	service registry.PortKey
	id      registry.ListenerID
	gone    bool
}

// A leftKey is an endpoint that has left a rotation.
type leftKey struct {
	rotation *rotation.Rotation
	addr     registry.Addr
}

func newAdoption(p *Proxier) *adoption {
	return &adoption{
		proxier:   p,
		claims:    make(map[claimKey]*engine.Claim),
		endpoints: make(map[*rotation.Rotation]map[registry.Addr]*rotation.Endpoint),
		left:      make(map[leftKey]*rotation.Endpoint),
		owners:    make(map[registry.ListenerID]*atomic.Pointer[engine.Claim]),
	}
}

// adopt takes over one item. If it fails, the descriptors are the caller's.
func (a *adoption) adopt(item takeover.Item) error {
	message, err := handover.Decode(item)
	if err != nil {
		return err
	}
	p := a.proxier
	switch r := message.(type) {
	case *handover.Rotation:
		p.lb.Adopt(r)
	case *handover.Affinities:
		p.lb.AdoptAffinities(r)
	case *handover.UDPPort:
		if l := p.listeners[registry.ListenerID{Addr: r.At, Protocol: registry.UDP, Number: r.Number}]; l != nil {
			if port, ok := l.socket.(interface{ AdoptLost(uint32) }); ok {
				port.AdoptLost(r.Lost)
			}
		}
	case *handover.TCP:
		at := a.place(r.Service, registry.ListenerID{Addr: r.At, Protocol: registry.TCP, Number: r.Port}, r.Endpoint, gone{r.ServiceGone, r.EndpointGone, r.Removal})
		if r.Lent == 0 {
			a.connections++
		}
		return p.engine.AdoptTCP(r, at, item.Descriptors)
	case *handover.Rest:
		a.connections++
		return p.engine.AdoptRest(r)
	case *handover.UDP:
		at := a.place(r.Service, registry.ListenerID{Addr: r.At, Protocol: registry.UDP, Number: r.Port}, r.Endpoint, gone{})
		at.Previous = a.endpoint(at.Claim.Rotation, r.Previous, gone{})
		if r.Lent == 0 {
			a.sessions++
		}
		return p.engine.AdoptUDP(r, at, item.Descriptors)
	case *handover.UDPRest:
		a.sessions++
		return p.engine.AdoptUDPRest(r)
	default:
		return fmt.Errorf("%T among the connections", message)
	}
	return nil
}

// Gone is what a predecessor knows of removals: how long ago the service and the endpoint of a client were removed, and what the service said of
// that.
type gone struct {
	service, endpoint time.Duration // 0: they are there
	then              registry.Removal
}

// place finds where a client of a service belongs.
func (a *adoption) place(service registry.PortKey, id registry.ListenerID, addr registry.Addr, gone gone) engine.Place {
	key := claimKey{service, id, gone.service > 0}
	claim := a.claims[key]
	if claim == nil {
		claim = a.claim(key, gone)
		a.claims[key] = claim
	}
	at := engine.Place{Claim: claim, Endpoint: a.endpoint(claim.Rotation, addr, gone)}
	if l := a.proxier.listeners[id]; l != nil {
		at.Owner, at.Socket = &l.owner, l.socket
		return at
	}
	if a.owners[id] == nil {
		a.owners[id] = new(atomic.Pointer[engine.Claim])
		a.owners[id].Store(claim)
	}
	at.Owner = a.owners[id]
	return at
}

// claim returns the claim of a service on a port. If there is none, it is one whose lifetime ended so long ago.
func (a *adoption) claim(key claimKey, gone gone) *engine.Claim {
	p := a.proxier
	if l := p.listeners[key.id]; l != nil && !key.gone { // a service that was put back since has a new lifetime
		if c := l.claims.find(key.service.Name); c != nil && c.Key == key.service {
			p.equip(c) // it may wait for the port again, and has connections of the time when it had it
			return c
		}
	}
	c := &engine.Claim{
		ID:       key.id,
		Key:      key.service,
		Rotation: p.lb.Hold(key.service),
		Tally:    p.tallies.Hold(key.service, key.id.Protocol),
		Lifetime: new(removal.Lifetime),
		Terms:    &registry.Terms{Removal: gone.then},
	}
	c.Lifetime.End(p.cfg.RemovalOf(c.Terms), traffic.ServiceRemoved, gone.service)
	a.departed = append(a.departed, c)
	return c
}

// endpoint returns an endpoint of a rotation; nil for none. One that has left the rotation is found too, for those who are with it.
func (a *adoption) endpoint(r *rotation.Rotation, addr registry.Addr, gone gone) *rotation.Endpoint {
	if addr == (registry.Addr{}) {
		return nil
	}
	all := a.endpoints[r]
	if all == nil {
		all = make(map[registry.Addr]*rotation.Endpoint)
		for _, e := range r.Endpoints() {
			all[e.Addr] = e
		}
		a.endpoints[r] = all
	}
	if e := all[addr]; e != nil && gone.endpoint == 0 { // one that was put back since has a new lifetime
		return e
	}
	key := leftKey{r, addr}
	if a.left[key] == nil {
		a.left[key] = r.Departed(addr, a.proxier.cfg.RemovalOf(&registry.Terms{Removal: gone.then}), gone.endpoint)
	}
	return a.left[key]
}

// end gives back what the claims of services held that have left.
func (a *adoption) end() {
	for _, c := range a.departed {
		a.proxier.lb.Release(c.Rotation)
		a.proxier.tallies.Release(c.Tally)
	}
}

// closeDescriptors closes what came with an item. A peer notices nothing, for the predecessor has it too.
func closeDescriptors(item takeover.Item) {
	for _, fd := range item.Descriptors {
		os.NewFile(uintptr(fd), "taken over").Close()
	}
}
