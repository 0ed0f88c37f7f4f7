package balance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// clientsEach is how many clients one record names.
const clientsEach = 512

// exported returns what a balancer has learned.
func exported(lb *LoadBalancerRR) (rotations []handover.Rotation, clients []handover.Affinity) {
	for record := range lb.Export() {
		switch r := record.(type) {
		case *handover.Rotation:
			rotations = append(rotations, *r)
		case *handover.Affinities:
			clients = append(clients, r.Clients...)
		}
	}
	return rotations, clients
}

func TestASuccessorKnowsWhatTheBalancerHasLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := registry.PortKey{Name: registry.Name{Namespace: registry.DefaultNamespace, Name: "web"}}
		addrs := func(ports ...uint16) map[registry.Name]*registry.Endpoints {
			var all []registry.Addr
			for _, port := range ports {
				all = append(all, registry.Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), port)})
			}
			return map[registry.Name]*registry.Endpoints{key.Name: {Name: key.Name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(all...)}}}}
		}
		old, next := NewLoadBalancerRR(false), NewLoadBalancerRR(false)
		old.SetEndpoints(addrs(1, 2, 3, 4))
		next.SetEndpoints(addrs(1, 2, 3, 4))
		r := old.Hold(key)
		for i := range 2 * clientsEach {
			client := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
			choice := r.ChooseFor(registry.UDP, client, &registry.Terms{AffinityTimeout: time.Hour}, nil)
			choice.Next()
			time.Sleep(time.Second)
		}
		endpoints := r.Endpoints()
		endpoints[1].Failed(registry.TCP)
		time.Sleep(health.FirstEjection)
		endpoints[1].Failed(registry.TCP)
		unusable := r.ChooseAfter(endpoints[2], registry.UDP, netip.Addr{}, &registry.Terms{}, nil)
		unusable.Unusable(endpoints[2], traffic.NameFailed)
		endpoints[3].Failed(registry.UDP)
		time.Sleep(2 * health.FirstEjection)
		r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)

		for record := range old.Export() {
			switch r := record.(type) {
			case *handover.Rotation:
				next.Adopt(r)
			case *handover.Affinities:
				next.AdoptAffinities(r)
			}
		}
		wantRotations, wantClients := exported(old)
		gotRotations, gotClients := exported(next)
		if diff := cmp.Diff(wantRotations, gotRotations, cmp.Comparer(func(a, b registry.Addr) bool { return a == b })); diff != "" {
			t.Errorf("rotations (-old +new):\n%s", diff)
		}
		if got := gotRotations[0].Endpoints; !slices.ContainsFunc(got, func(e handover.Endpoint) bool { return e.Health[registry.UDP].Unusable == "name_failed" }) {
			t.Errorf("why an endpoint cannot be used is not among %+v", got)
		}
		if len(wantRotations) != 1 || len(wantRotations[0].Endpoints) != 3 || len(wantClients) != 2*clientsEach {
			t.Errorf("%+v and %d clients: that is not what was learned", wantRotations, len(wantClients))
		}
		if diff := cmp.Diff(wantClients, gotClients, cmp.Comparer(func(a, b registry.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("clients (-old +new):\n%s", diff)
		}

		other := NewLoadBalancerRR(false)
		other.SetEndpoints(addrs(4, 3)) // of two endpoints that have gone it was the turn of one
		for _, turn := range [...]struct{ next, want int }{{0, 3}, {1, 3}, {2, 3}, {3, 4}} {
			record := handover.Rotation{Service: key}
			for i := range 4 {
				record.Next = append(record.Next, endpoints[(turn.next+i)%4].Addr)
			}
			other.Adopt(&record)
			choice := other.Hold(key).ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
			if e, _ := choice.Next(); int(e.Addr.IP.Port()) != turn.want {
				t.Errorf("when it was the turn of %v, %v is offered; want port %d", record.Next[0], e.Addr, turn.want)
			}
		}
	})
}

// allowing lets checks ask every address.
type allowing struct{}

func (allowing) Recall(_ registry.Protocol, addr registry.Addr) ([]netip.AddrPort, error, bool) {
	return []netip.AddrPort{addr.IP}, nil, true
}
func (allowing) Resolve(context.Context, registry.Protocol, registry.Addr) ([]netip.AddrPort, error) {
	return nil, errors.New("there is no name to resolve")
}
func (allowing) Take(int) bool { return true }
func (allowing) Release(int)   {}

func TestASuccessorGoesOnFromWhatChecksHaveFound(t *testing.T) {
	if !checks.Supported {
		t.Skip("nothing is checked on this system")
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(-monotonic.Now())                 // a bubble begins in the year 2000, before that clock does
		const well, ill, doubtful, back = 1, 2, 3, 4 // endpoints, by their numbers
		key := registry.PortKey{Name: web}
		node := func(path string) *LoadBalancerRR {
			lb := NewLoadBalancerRR(false)
			lb.Checker = checks.New(checks.Settings{Interval: time.Minute, SlowStart: time.Hour}, allowing{}, allowing{})
			setEndpoints(lb, web, well, ill, doubtful, back)
			t.Cleanup(func() { lb.Release(lb.find(key)) })
			lb.Hold(key)
			service := &registry.Service{Name: web, Ports: []registry.Port{{Number: 80}}}
			service.SetTerms(registry.Terms{Checks: registry.Check{Wanted: registry.CheckOn, Path: path}})
			lb.setService(web, service)
			return lb
		}
		standings := func(lb *LoadBalancerRR) map[registry.Addr]health.Standing {
			all := make(map[registry.Addr]health.Standing)
			for addr, standing := range lb.find(key).Standings(registry.TCP, netip.Addr{}) {
				all[addr] = standing
			}
			return all
		}
		old := node("/healthz")
		ctx, stop := context.WithCancel(t.Context())
		began := time.Now()
		old.Checker.Ask = func(k *checks.Key) error {
			minute := int(time.Since(began) / time.Minute)
			switch k.Addr {
			case addr(ill):
				return errors.New("silent")
			case addr(doubtful):
				if minute >= 9 {
					return errors.New("silent")
				}
			case addr(back):
				if minute < 5 {
					return errors.New("silent")
				}
			}
			return nil
		}
		done := make(chan struct{})
		go func() { defer close(done); old.Checker.Run(ctx) }()
		time.Sleep(10*time.Minute + time.Second)
		stop()
		<-done
		want := map[registry.Addr]health.Standing{
			addr(well): health.Sound, addr(ill): health.Failing, addr(doubtful): health.Doubtful, addr(back): health.Unsettled,
		}
		if got := standings(old); !maps.Equal(got, want) {
			t.Fatalf("the standings are %v; want %v", got, want)
		}

		next, other := node("/healthz"), node("/other")
		for _, lb := range []*LoadBalancerRR{next, other} {
			for record := range old.Export() {
				lb.Adopt(record.(*handover.Rotation))
			}
		}
		if got := standings(next); !maps.Equal(got, want) {
			t.Errorf("the successor has %v; want %v", got, want)
		}
		wantRotations, _ := exported(old)
		gotRotations, _ := exported(next)
		if diff := cmp.Diff(wantRotations, gotRotations, cmp.Comparer(func(a, b registry.Addr) bool { return a == b })); diff != "" {
			t.Errorf("a successor of the successor is told otherwise (-old +new):\n%s", diff)
		}
		for _, e := range next.Status() {
			since, err := time.Time{}, ""
			if e.Addr == addr(ill) {
				since, err = old.Checker.Failing(1)[0].State().Since, "silent"
			}
			if !e.FailingSince.Equal(since) || e.CheckError != err {
				t.Errorf("%v: failing since %v: %q; want %v: %q", e.Addr, e.FailingSince, e.CheckError, since, err)
			}
		}
		if next.Checker.Ask = func(*checks.Key) error { return nil }; next.Checker.Counts().Unknown != 0 {
			t.Error("an address is unknown to the successor")
		}
		for addr, standing := range standings(other) {
			if standing != health.Awaited {
				t.Errorf("%v has standing %v by another question; want it awaited", addr, standing)
			}
		}
	})
}

// The kernel cannot give a client another endpoint, so it has to know which endpoints may hang unnoticed.
func TestTheStandingOfAnEndpointSaysThatItsChecksAreOverdue(t *testing.T) {
	if !checks.Supported {
		t.Skip("nothing is checked on this system")
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(-monotonic.Now()) // a bubble begins in the year 2000, before that clock does
		descriptors, changed := new(scarce), new(atomic.Int64)
		lb := NewLoadBalancerRR(false)
		lb.Checker = checks.New(checks.Settings{On: true}, allowing{}, descriptors)
		lb.Checker.Ask = func(*checks.Key) error { return nil }
		lb.Changed = func(*rotation.Rotation) { changed.Add(1) }
		setEndpoints(lb, web, 1)
		r := lb.Hold(registry.PortKey{Name: web})
		defer lb.Release(r)
		lb.setService(web, &registry.Service{Name: web, Ports: []registry.Port{{Number: 80}}})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); lb.Checker.Run(ctx) }()
		defer func() { stop(); <-done }()
		for _, c := range []struct {
			none bool
			want health.Standing
		}{{false, health.Sound}, {true, health.Overdue}, {false, health.Sound}} {
			descriptors.none.Store(c.none)
			before := changed.Load()
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, standing := range r.Standings(registry.TCP, netip.Addr{}) {
				if standing != c.want || changed.Load() == before {
					t.Errorf("without descriptors: %t: standing %v; want %v. The hook was called %d times", c.none, standing, c.want, changed.Load()-before)
				}
			}
		}
	})
}

// Who gives clients to endpoints in place of the proxy does not know of weights. What is worse is said first, for clients leave those endpoints, and
// stay with one of weight 0.
func TestTheStandingOfAnEndpointSaysThatItHasAWeight(t *testing.T) {
	if !checks.Supported {
		t.Skip("nothing is checked on this system")
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(-monotonic.Now()) // a bubble begins in the year 2000, before that clock does
		all := addrs(1, 2, 3, 4)
		lb := NewLoadBalancerRR(false)
		lb.Checker = checks.New(checks.Settings{On: true}, allowing{}, allowing{})
		lb.Checker.Ask = func(k *checks.Key) error {
			if k.Addr == all[3] {
				return errors.New("it fails")
			}
			return nil
		}
		weights := registry.Weights(fmt.Sprintf("%s=0,%s=5,%s=0", all[1].IP.Addr(), all[2].IP.Addr(), all[3].IP.Addr()))
		lb.SetEndpoints(map[registry.Name]*registry.Endpoints{web: {Name: web, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(all...)}}, Weights: weights}})
		r := lb.Hold(registry.PortKey{Name: web})
		defer lb.Release(r)
		lb.setService(web, &registry.Service{Name: web, Ports: []registry.Port{{Number: 80}}})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); lb.Checker.Run(ctx) }()
		defer func() { stop(); <-done }()
		time.Sleep(time.Minute)
		synctest.Wait()
		var got []health.Standing
		for _, standing := range r.Standings(registry.TCP, netip.Addr{}) {
			got = append(got, standing)
		}
		if want := []health.Standing{health.Sound, health.Weighted, health.Weighted, health.Failing}; !slices.Equal(got, want) {
			t.Errorf("the standings are %v; want %v", got, want)
		}
	})
}

// scarce has descriptors or has none.
type scarce struct {
	allowing
	none atomic.Bool
}

func (s *scarce) Take(int) bool { return !s.none.Load() }

// What the checks of a successor have found stays, but for an address that fails in its predecessor.
func TestOwnChecksCountMoreThanThoseOfAPredecessor(t *testing.T) {
	passes, fails := checks.State{Known: true}, checks.State{Known: true, Fails: true, Err: "silent"}
	for _, c := range []struct {
		name           string
		own, old, want checks.State
	}{
		{"own checks fail", fails, passes, fails},
		{"own checks pass", passes, fails, fails},
		{"own checks pass, and one has failed there", passes, checks.State{Known: true, Err: "silent", Run: 1}, passes},
		{"none has ended", checks.State{}, passes, passes},
	} {
		checker := checks.New(checks.Settings{On: true}, allowing{}, allowing{})
		heard := new(listening)
		target := checker.Watch(checks.Key{Interval: time.Minute}, heard)
		checker.Adopt(target, c.own)
		heard.fails = c.own.Fails
		checker.Adopt(target, c.old)
		if got := target.State(); got != c.want || heard.fails != c.want.Fails {
			t.Errorf("%s: the state is %+v, and the endpoint was told that it fails: %t; want %+v", c.name, got, heard.fails, c.want)
		}
	}
}

// A listening is a watcher that keeps the last it was told.
type listening struct{ fails bool }

func (l *listening) Checked(_ registry.Protocol, passes bool) { l.fails = !passes }
func (*listening) Service() registry.Name                     { return web }
func (*listening) Passed(registry.Protocol)                   {}
func (*listening) Noted(registry.Protocol)                    {}
