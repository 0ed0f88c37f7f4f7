package balance

import (
	"cmp"
	"iter"
	"slices"

	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/registry"
)

// Status tells how things stand with every endpoint, in the order of services, of their ports, and of the record.
func (lb *LoadBalancerRR) Status() []rotation.EndpointStatus {
	return lb.status(func(*rotation.Rotation) bool { return true })
}

func (lb *LoadBalancerRR) status(wanted func(*rotation.Rotation) bool) []rotation.EndpointStatus {
	var all []rotation.EndpointStatus
	rotations := slices.DeleteFunc(lb.list(), func(r *rotation.Rotation) bool { return !wanted(r) })
	slices.SortFunc(rotations, func(a, b *rotation.Rotation) int {
		return cmp.Or(a.Key.Name.Compare(b.Key.Name), cmp.Compare(a.Key.Port, b.Key.Port))
	})
	for _, r := range rotations {
		each, _, _ := r.EndpointStatus()
		all = slices.AppendSeq(all, each)
	}
	return all
}

// StatusOf tells how things stand with every endpoint of one service, in the order of its ports, and of the record.
func (lb *LoadBalancerRR) StatusOf(service registry.Name) []rotation.EndpointStatus {
	return lb.status(func(r *rotation.Rotation) bool { return r.Key.Name == service })
}

// RotationStatus yields how things stand with each rotation there is at the call, in no order. It costs little, for most rotations have had
// no client at this node. One at a time: services may list tens of thousands of ports.
func (lb *LoadBalancerRR) RotationStatus() iter.Seq[rotation.Status] {
	rotations := lb.list()
	return func(yield func(rotation.Status) bool) {
		for _, r := range rotations {
			if !yield(r.Status()) {
				return
			}
		}
	}
}

// StatusOfPort tells how things stand with the rotation of one port of a service, and whether there is one.
func (lb *LoadBalancerRR) StatusOfPort(key registry.PortKey) (s rotation.Status, ok bool) {
	r := lb.find(key)
	if r == nil {
		return s, false
	}
	return r.Status(), true
}

// OnNode counts the endpoints on the node that new clients of a service can be given: those of the port that has most. Ports whose clients are
// given endpoints elsewhere do not count, and neither do those whose clients are turned away. There are none of no service.
func (lb *LoadBalancerRR) OnNode(service *registry.Service) (most int) {
	if service == nil {
		return 0
	}
	for i := range service.Ports {
		p := &service.Ports[i]
		r := lb.find(registry.PortKey{Name: service.Name, Port: p.Name})
		if r == nil || !service.TermsOf(p).Local || r.Status().Of(p.Protocol, true).Condition.TurnsAway() {
			continue
		}
		each, _, _ := r.EndpointStatus()
		n := 0
		for e := range each {
			if e.Place&registry.OnNode != 0 && e.Weight > 0 && lb.Allows(e.Addr) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// EndpointsOf tells how things stand with the endpoints of one port of a service, in the order of the record: with the first most of
// them, and how many there are. The rotation goes on with the one at position next.
func (lb *LoadBalancerRR) EndpointsOf(key registry.PortKey, most int) (first []rotation.EndpointStatus, n, next int) {
	r := lb.find(key)
	if r == nil {
		return nil, 0, 0
	}
	each, n, next := r.EndpointStatus()
	for s := range each {
		if most--; most < 0 {
			break
		}
		first = append(first, s)
	}
	return first, n, next
}

// ClientsOf counts the connections, sessions and dials of the endpoints that match, of one service or, with the zero name, of all,
// those included that records do not list any more. A session that moves meanwhile may be counted twice, and never not at all: what has left
// is counted before and after the rotations. So an endpoint that leaves is met, and a session that moves from one that has left.
func (lb *LoadBalancerRR) ClientsOf(service registry.Name, match registry.AddrMatch) (n int64) {
	count := make(rotation.ClientCount)
	lb.CountClientsOfDeparted(count, service, match)
	for _, r := range lb.list() {
		if (service == registry.Name{}) || r.Key.Name == service {
			r.CountClients(count, match)
		}
	}
	lb.CountClientsOfDeparted(count, service, match)
	for _, clients := range count {
		n += clients
	}
	return n
}
