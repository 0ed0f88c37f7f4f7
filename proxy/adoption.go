package proxy

import (
	"fmt"
	"os"
	"sync/atomic"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// An adoption finds the place of each connection and session of a predecessor among the claims and endpoints of this process. The
// registry may have changed: what belongs to a service or an endpoint that is not there any more is treated as if they were removed now.
type adoption struct {
	proxier   *Proxier
	claims    map[claimKey]*engine.Claim
	endpoints map[*balance.Rotation]map[registry.Addr]*balance.Endpoint
	owners    map[registry.NodePort]*atomic.Pointer[engine.Claim] // of ports that nobody claims any more
	departed  []*engine.Claim                                     // of services that have left their ports

	connections, sessions int
}

// A claimKey is one port of a service, and the number that clients know it by.
type claimKey struct {
	service registry.PortKey
	id      registry.NodePort
}

func newAdoption(p *Proxier) *adoption {
	return &adoption{
		proxier:   p,
		claims:    make(map[claimKey]*engine.Claim),
		endpoints: make(map[*balance.Rotation]map[registry.Addr]*balance.Endpoint),
		owners:    make(map[registry.NodePort]*atomic.Pointer[engine.Claim]),
	}
}

// adopt takes over one item. If it fails, the descriptors are the caller's.
func (a *adoption) adopt(item takeover.Item) error {
	record, err := handover.Decode(item)
	if err != nil {
		return err
	}
	p := a.proxier
	switch r := record.(type) {
	case *handover.Rotation:
		p.lb.Adopt(r)
	case *handover.Affinities:
		p.lb.AdoptAffinities(r)
	case *handover.UDPPort:
		if l := p.listeners[registry.NodePort{Protocol: registry.UDP, Number: r.Number}]; l != nil {
			if port, ok := l.socket.(interface{ AdoptLost(uint32) }); ok {
				port.AdoptLost(r.Lost)
			}
		}
	case *handover.TCP:
		at := a.place(r.Service, registry.NodePort{Protocol: registry.TCP, Number: r.Port}, r.Endpoint)
		a.connections++
		return p.engine.AdoptTCP(r, at, item.Descriptors)
	case *handover.UDP:
		at := a.place(r.Service, registry.NodePort{Protocol: registry.UDP, Number: r.Port}, r.Endpoint)
		at.Previous = a.endpoint(at.Claim.Rotation, r.Previous)
		a.sessions++
		return p.engine.AdoptUDP(r, at, item.Descriptors)
	default:
		return fmt.Errorf("%T among the connections", record)
	}
	return nil
}

// place finds where a client of a service belongs.
func (a *adoption) place(service registry.PortKey, id registry.NodePort, addr registry.Addr) engine.Place {
	key := claimKey{service, id}
	claim := a.claims[key]
	if claim == nil {
		claim = a.claim(key)
		a.claims[key] = claim
	}
	at := engine.Place{Claim: claim, Endpoint: a.endpoint(claim.Rotation, addr)}
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

// claim returns the claim of a service on a port. If there is none, it is one whose lifetime has just ended.
func (a *adoption) claim(key claimKey) *engine.Claim {
	p := a.proxier
	if l := p.listeners[key.id]; l != nil {
		if c := l.claims.find(key.service.Name); c != nil && c.Key == key.service {
			return c
		}
	}
	c := &engine.Claim{
		Key:      key.service,
		Rotation: p.lb.Hold(key.service),
		Tally:    p.tallies.Hold(key.service, key.id.Protocol),
		Lifetime: new(balance.Lifetime),
	}
	c.Lifetime.End(p.cfg.OnRemoval, traffic.ServiceRemoved)
	a.departed = append(a.departed, c)
	return c
}

// endpoint returns an endpoint of a rotation; nil for none. One that has left the rotation is found too, for those who are with it.
func (a *adoption) endpoint(r *balance.Rotation, addr registry.Addr) *balance.Endpoint {
	if addr == (registry.Addr{}) {
		return nil
	}
	all := a.endpoints[r]
	if all == nil {
		all = make(map[registry.Addr]*balance.Endpoint)
		for _, e := range r.Endpoints() {
			all[e.Addr] = e
		}
		a.endpoints[r] = all
	}
	if all[addr] == nil {
		all[addr] = r.Departed(addr)
	}
	return all[addr]
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
