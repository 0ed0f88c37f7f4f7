package statuspage

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"kubeproxy/cmd/internal/history"
	"kubeproxy/cmd/internal/localhealth"
	"kubeproxy/cmd/internal/statuspage/recent"
	"kubeproxy/config"
	"kubeproxy/proxy"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A site is a node that says what a test wants it to.
type site struct {
	overrides []balance.Override

	mu            sync.Mutex // held by who edits totals, endpoints, ports or services while the page is asked
	ports         []proxy.PortStatus
	totals        []traffic.Totals
	services      map[registry.Name]*registry.Service
	endpoints     map[registry.PortKey][]rotation.EndpointStatus
	limits        []traffic.Limit
	sources       []config.Source
	live          error
	leaving       bool
	stopping      bool
	routesMissing error
	stale         bool
	maxAge        time.Duration
	algorithm     registry.Balance
	upgrade       error // that failed
	overdue       checks.Overdue
	healthPorts   []localhealth.Problem
	kernel        *kernel.Status
	endings       recent.Endings
	changes       history.History
	clients       []traffic.Client
	listed        int // how often they were
	listing       time.Duration
}

func (s *site) Status() []proxy.PortStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ports
}
func (s *site) KernelStatus() *kernel.Status { return s.kernel }
func (s *site) Clients(_ context.Context, of traffic.Selection, _ bool) iter.Seq2[[]traffic.Client, error] {
	s.listed++
	time.Sleep(s.listing)
	return func(yield func([]traffic.Client, error) bool) {
		for i := range s.clients {
			if of.Has(&s.clients[i]) && !yield(s.clients[i:i+1], nil) {
				return
			}
		}
	}
}
func (s *site) EachTotals() iter.Seq[traffic.Totals] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Values(slices.Clone(s.totals))
}
func (s *site) Service(name registry.Name) *registry.Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.services[name]
}
func (s *site) Limits() []traffic.Limit { return s.limits }
func (s *site) RotationStatus() iter.Seq[rotation.Status] {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []rotation.Status
	for key, endpoints := range s.endpoints {
		r := rotation.Status{Service: key, Endpoints: len(endpoints)}
		for _, e := range endpoints {
			if !e.FailingSince.IsZero() {
				r.Failing++
				r.Examples = append(r.Examples, e)
			}
		}
		r.Condition = conditionOf(endpoints)
		all = append(all, r)
	}
	return slices.Values(all)
}

// conditionOf is what new clients of a port with these endpoints get.
func conditionOf(endpoints []rotation.EndpointStatus) health.Condition {
	offered, unanswered, failing := 0, 0, 0
	for _, e := range endpoints {
		switch {
		case e.Weight == 0:
			continue
		case e.CheckError != "":
			failing++
		case !e.FailingSince.IsZero():
			unanswered++
		}
		offered++
	}
	switch {
	case len(endpoints) == 0:
		return health.NoEndpoints
	case offered == 0:
		return health.ZeroWeight
	case unanswered == offered:
		return health.NoAnswer
	case unanswered+failing == offered:
		return health.ChecksFail
	}
	return health.Served
}

func (s *site) Overrides() []balance.Override { return s.overrides }

func (s *site) OverrideOf(service registry.Name, addr registry.Addr) (o balance.Override, ok bool) {
	for _, o := range s.overrides {
		if o.Service == service && o.Addr == addr {
			return o, true
		}
	}
	return o, false
}

func (s *site) EndpointsOf(key registry.PortKey, most int) (first []rotation.EndpointStatus, n, next int) {
	all := s.endpoints[key]
	return all[:min(most, len(all))], len(all), 0
}

func (s *site) Algorithm(named registry.Balance) registry.Balance {
	return cmp.Or(named, s.algorithm, registry.RoundRobin)
}

// A fakeSource has a status and does nothing.
type fakeSource struct {
	name   string
	status config.Status
}

func (f *fakeSource) Name() string                                      { return f.name }
func (f *fakeSource) Run(context.Context, chan<- registry.Update) error { return nil }
func (f *fakeSource) Resync()                                           {}
func (f *fakeSource) Status() config.Status                             { return f.status }

// newSite returns a node that is well, and has n services with two endpoints each.
func newSite(n int) *site {
	now := time.Now()
	s := &site{
		services:  make(map[registry.Name]*registry.Service),
		endpoints: make(map[registry.PortKey][]rotation.EndpointStatus),
		limits:    []traffic.Limit{{Name: "connections", Used: 10, Max: 100}, {Name: "udp_sessions", Used: 0, Max: 100}},
		sources: []config.Source{&fakeSource{"etcd", config.Status{
			Ready: true, Connected: true, Since: now, Current: now, Heard: now, Revision: 42,
		}}},
	}
	for i := range n {
		s.add(registry.Name{Namespace: "default", Name: fmt.Sprintf("service-%05d", i)}, uint16(1000+i))
	}
	return s
}

// add adds a service with one TCP port and two endpoints.
func (s *site) add(name registry.Name, number uint16) registry.PortKey {
	key := registry.PortKey{Name: name}
	s.sources[0].(*fakeSource).status.Services++
	s.services[name] = &registry.Service{Name: name, Ports: []registry.Port{{Number: number}}}
	s.ports = append(s.ports, proxy.PortStatus{ID: registry.ListenerID{Number: number}, Owner: key})
	s.totals = append(s.totals, traffic.Totals{Service: key, Active: 3, Sent: 1 << 40, Received: 1 << 30})
	for i := range 2 {
		s.endpoints[key] = append(s.endpoints[key], rotation.EndpointStatus{Service: key, Addr: addr(i), Weight: 1, Active: 1, Connections: 5})
	}
	return key
}

func addr(i int) registry.Addr {
	return registry.Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), 80)}
}

// page returns the page about a site.
func (s *site) page(t testing.TB) *Page {
	p := New(Node{
		Host:     "node-1",
		Version:  "v1",
		Leaving:  func() bool { return s.leaving || s.stopping },
		Stopping: func() bool { return s.stopping },

		RoutesMissing: func() error { return s.routesMissing },
		HealthPorts:   func() []localhealth.Problem { return s.healthPorts },
		Live:          func() error { return s.live },
		Age:           func() time.Duration { return time.Hour },
		MaxAge:        s.maxAge,
		Stale:         func() bool { return s.stale },
		Sources:       s.sources,
		Proxier:       s,
		Balancer:      s,
		Endings:       &s.endings,
		History:       &s.changes,
		Overdue:       func() checks.Overdue { return s.overdue },

		UpgradeFailure: func() (time.Time, error) { return time.Now(), s.upgrade },
	})
	t.Cleanup(p.Close)
	return p
}
