package balance

import (
	"iter"
	"maps"
	"net/netip"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/affinity"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// What the balancer has learned from clients passes to a successor: whose turn it is, who is ejected, and who was given which
// endpoint. Rotations that no client has come to have learned nothing.

// affinitiesEach is how many clients one record names.
const affinitiesEach = 512

// Export yields what was learned. Nobody may begin to choose meanwhile.
func (lb *LoadBalancerRR) Export() iter.Seq[handover.Record] {
	lb.mu.Lock()
	var awake []*Rotation
	for rotations := range maps.Values(lb.services) {
		for _, r := range rotations {
			if len(r.set.Load().endpoints) > 0 {
				awake = append(awake, r)
			}
		}
	}
	lb.mu.Unlock()
	return func(yield func(handover.Record) bool) {
		for _, r := range awake {
			if !yield(r.record()) {
				return
			}
			for protocol := range r.clients {
				for of := range r.affinities(registry.Protocol(protocol)) {
					if !yield(of) {
						return
					}
				}
			}
		}
	}
}

func (r *Rotation) record() *handover.Rotation {
	set, now := r.set.Load(), monotonic.Now()
	record := &handover.Rotation{Service: r.Key}
	n := uint64(len(set.endpoints))
	for i, next := uint64(0), set.cursor.Load(); i < min(n, MaxOffers); i++ {
		record.Next = append(record.Next, set.endpoints[(next+i)%n].Addr)
	}
	for _, e := range set.endpoints {
		if x := e.known.Load(); x != nil {
			if health := [2]handover.Health{x.health[0].Record(now), x.health[1].Record(now)}; health != [2]handover.Health{} {
				record.Endpoints = append(record.Endpoints, handover.Endpoint{Addr: e.Addr, Health: health})
			}
		}
	}
	return record
}

// Adopt has a rotation go on where that of a predecessor was, as far as it has the same endpoints.
func (lb *LoadBalancerRR) Adopt(record *handover.Rotation) {
	r := lb.find(record.Service)
	if r == nil {
		return
	}
	set, now := r.awake(), monotonic.Now()
	at := make(map[registry.Addr]int, len(set.endpoints))
	for i, e := range set.endpoints {
		at[e.Addr] = i
	}
	for _, addr := range record.Next {
		if i, ok := at[addr]; ok {
			set.cursor.Store(uint64(i))
			break
		}
	}
	for _, known := range record.Endpoints {
		i, ok := at[known.Addr]
		if !ok {
			continue
		}
		e := set.endpoints[i]
		for protocol := range known.Health {
			e.Record().health[protocol].Adopt(known.Health[protocol], now)
			e.follow(registry.Protocol(protocol))
		}
	}
}

// find returns the rotation of a port; nil if there is none.
func (lb *LoadBalancerRR) find(key registry.PortKey) *Rotation {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	if at, ok := lb.findLocked(key); ok {
		return lb.services[key.Name][at]
	}
	return nil
}

// Departed returns an endpoint of a predecessor's that left the rotation so long ago, which is when the time of its connections began.
func (r *Rotation) Departed(addr registry.Addr, ago time.Duration) *Endpoint {
	e := &Endpoint{Addr: addr, Rotation: r}
	x := e.Record()
	x.gone.Store(true)
	x.Lifetime.End(r.balancer.OnRemoval, traffic.EndpointRemoved, ago)
	return e
}

// ChooseAfter is the choice of a client that was offered e, and reached it. It takes nobody's turn.
func (r *Rotation) ChooseAfter(e *Endpoint, protocol registry.Protocol, client netip.Addr, terms *registry.Terms, of *Lifetime) (c Choice) {
	c.begin(r, protocol, client, terms, of)
	c.last, c.Offers = e, 1
	return c
}

// affinities yields the clients that the rotation remembers, in their order.
func (r *Rotation) affinities(protocol registry.Protocol) iter.Seq[*handover.Affinities] {
	return func(yield func(*handover.Affinities) bool) {
		of := &handover.Affinities{Service: r.Key, Protocol: protocol}
		for known := range r.balancer.affinities.All(&r.clients[protocol]) {
			of.Clients = append(of.Clients, handover.Affinity{Client: known.Addr, Endpoint: known.Endpoint.Addr, Age: known.Age, Timeout: known.Timeout})
			if len(of.Clients) == affinitiesEach {
				if !yield(of) {
					return
				}
				of.Clients = of.Clients[:0]
			}
		}
		if len(of.Clients) > 0 {
			yield(of)
		}
	}
}

// AdoptAffinities remembers clients of a predecessor whose endpoints are still there.
func (lb *LoadBalancerRR) AdoptAffinities(of *handover.Affinities) {
	r := lb.find(of.Service)
	if r == nil {
		return
	}
	at := make(map[registry.Addr]*Endpoint)
	for _, e := range r.Endpoints() {
		at[e.Addr] = e
	}
	for _, known := range of.Clients {
		if e := at[known.Endpoint]; e != nil {
			lb.affinities.Adopt(&r.clients[of.Protocol], affinity.Known[*Endpoint]{Addr: known.Client, Endpoint: e, Age: known.Age, Timeout: known.Timeout})
		}
	}
}
