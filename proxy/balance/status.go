package balance

import (
	"maps"
	"slices"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/registry"
)

// Status tells how things stand with every endpoint, in the order of services, of their ports, and of the record.
func (lb *LoadBalancerRR) Status() []EndpointStatus {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	var all []EndpointStatus
	for _, name := range slices.SortedFunc(maps.Keys(lb.services), registry.Name.Compare) {
		for _, r := range lb.services[name] {
			set := r.set.Load()
			for _, e := range set.endpoints {
				all = append(all, e.Status())
			}
			for addr := range set.addrs.All() { // nobody has come to any of them
				all = append(all, EndpointStatus{Service: r.Key, Addr: addr})
			}
		}
	}
	return all
}

// Status tells how things stand with one endpoint.
func (e *Endpoint) Status() EndpointStatus {
	s := EndpointStatus{Service: e.Rotation.Key, Addr: e.Addr}
	x := e.known.Load()
	if x == nil {
		return s
	}
	s.Active, s.Connections, s.Failures = x.active.Load(), x.connections.Load(), x.Failures.Load()
	for _, protocol := range [...]registry.Protocol{registry.TCP, registry.UDP} {
		if until := time.Now().Add(e.downUntil(protocol) - monotonic.Now()); e.down(protocol) && until.After(s.DownUntil) {
			s.DownUntil = until
		}
	}
	return s
}

// An EndpointStatus tells how things stand with one endpoint of one port of a service.
type EndpointStatus struct {
	Service     registry.PortKey
	Addr        registry.Addr
	Active      int64     // connections and sessions now
	Connections uint64    // and since it came, those that have ended included
	Failures    uint64    // attempts that did not reach it
	DownUntil   time.Time // it is passed over until then, over one protocol or both; zero when it is not
}
