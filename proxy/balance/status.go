package balance

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/registry"
)

// Status tells how things stand with every endpoint, in the order of services, of their ports, and of the record.
func (lb *LoadBalancerRR) Status() []EndpointStatus {
	var all []EndpointStatus
	rotations := lb.list()
	slices.SortFunc(rotations, func(a, b *Rotation) int {
		return cmp.Or(a.Key.Name.Compare(b.Key.Name), cmp.Compare(a.Key.Port, b.Key.Port))
	})
	for _, r := range rotations {
		all = slices.AppendSeq(all, r.set.Load().status(r.Key))
	}
	return all
}

// list returns all rotations, in no order. A change waits for no more than this.
func (lb *LoadBalancerRR) list() []*Rotation {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	all := make([]*Rotation, 0, len(lb.services))
	for _, rotations := range lb.services {
		all = append(all, rotations...)
	}
	return all
}

// A RotationStatus tells in numbers how things stand with the endpoints of one port of a service.
type RotationStatus struct {
	Service   registry.PortKey
	Endpoints int
	Failing   int              // endpoints that did not answer the last client that was given them
	Examples  []EndpointStatus // of those that fail, in the order of the record
}

// maxExamples bounds Examples: a record may list tens of thousands of endpoints that do not answer.
const maxExamples = 8

// RotationStatus tells how things stand with each rotation, in no order. It costs little, for most rotations have had no
// client at this node.
func (lb *LoadBalancerRR) RotationStatus() []RotationStatus {
	rotations := lb.list()
	all := make([]RotationStatus, len(rotations))
	for i, r := range rotations {
		set := r.set.Load()
		all[i] = RotationStatus{Service: r.Key, Endpoints: len(set.endpoints) + set.addrs.Len()}
		for _, e := range set.endpoints {
			if !e.isFailing() {
				continue
			}
			if all[i].Failing++; all[i].Failing <= maxExamples {
				all[i].Examples = append(all[i].Examples, e.Status())
			}
		}
	}
	return all
}

// Algorithm returns the algorithm of a service whose record names this one.
func (lb *LoadBalancerRR) Algorithm(named registry.Balance) registry.Balance {
	switch {
	case named != registry.BalanceUnsaid:
		return named
	case lb.Balance != registry.BalanceUnsaid:
		return lb.Balance
	}
	return registry.RoundRobin
}

// EndpointsOf tells how things stand with the endpoints of one port of a service, in the order of the record: with the first most of
// them, and how many there are. The rotation goes on with the one at position next.
func (lb *LoadBalancerRR) EndpointsOf(key registry.PortKey, most int) (first []EndpointStatus, n, next int) {
	lb.mu.Lock()
	at, ok := lb.findLocked(key)
	if !ok {
		lb.mu.Unlock()
		return nil, 0, 0
	}
	r := lb.services[key.Name][at]
	lb.mu.Unlock()
	set := r.set.Load()
	if n = len(set.endpoints) + set.addrs.Len(); n > 0 {
		next = int(set.cursor.Load() % uint64(n))
	}
	if set.shares != nil {
		next = set.shares.Turn(set.cursor.Load())
	}
	return slices.Collect(func(yield func(EndpointStatus) bool) {
		for s := range set.status(r.Key) {
			if most--; most < 0 || !yield(s) {
				return
			}
		}
	}), n, next
}

// status yields how things stand with each endpoint.
func (s *endpointSet) status(key registry.PortKey) iter.Seq[EndpointStatus] {
	return func(yield func(EndpointStatus) bool) {
		for _, e := range s.endpoints {
			if !yield(e.Status()) {
				return
			}
		}
		i, weights := 0, s.record.Of(s.addrs)
		for addr := range s.addrs.All() { // nobody has come to any of them
			one := EndpointStatus{Service: key, Addr: addr, Weight: 1}
			if weights != nil {
				one.Weight = weights[i]
			}
			if i++; !yield(one) {
				return
			}
		}
	}
}

// isFailing reports whether the last attempt to reach the endpoint failed, or its checks fail, over either protocol.
func (e *Endpoint) isFailing() bool {
	for protocol := range registry.UDP + 1 {
		if h := e.healthOf(protocol); h != nil && (h.DownUntil() != 0 || h.FailsCheck()) {
			return true
		}
	}
	return false
}

// Status tells how things stand with one endpoint.
func (e *Endpoint) Status() EndpointStatus {
	s := EndpointStatus{Service: e.Rotation.Key, Addr: e.Addr, Weight: int(e.weight.Load())}
	x := e.known.Load()
	if x == nil {
		return s
	}
	s.Active, s.Connections, s.Failures = x.active.Load(), x.connections.Load(), x.Failures.Load()
	wall := func(t time.Duration) time.Time { return time.Now().Add(t - monotonic.Now()) }
	for protocol := range registry.UDP + 1 {
		s.Checked = s.Checked || x.checks[protocol].Load() != nil
		if check := e.checkState(protocol); check.Fails {
			s.CheckError = check.Err
			s.failingSince(check.Since)
		}
		h := &x.health[protocol]
		until := h.DownUntil()
		if until == 0 {
			continue
		}
		s.failingSince(wall(h.FailingSince()))
		if until := wall(until); e.down(protocol) && until.After(s.DownUntil) {
			s.DownUntil = until
		}
	}
	return s
}

// failingSince notes since when the endpoint fails in one way.
func (s *EndpointStatus) failingSince(since time.Time) {
	if s.FailingSince.IsZero() || since.Before(s.FailingSince) {
		s.FailingSince = since
	}
}

// An EndpointStatus tells how things stand with one endpoint of one port of a service.
type EndpointStatus struct {
	Service      registry.PortKey
	Addr         registry.Addr
	Weight       int       // its share of clients
	Active       int64     // connections and sessions now
	Connections  uint64    // and since it came, those that have ended included
	Failures     uint64    // attempts that did not reach it
	DownUntil    time.Time // it is passed over until then, over one protocol or both; zero when it is not
	FailingSince time.Time // the first failed attempt since it answered last, or when its checks began to fail; zero when it is well, as far as is known
	CheckError   string    // of the last check, if checks fail
	Checked      bool      // it is checked while no client comes, over one protocol or both
}
