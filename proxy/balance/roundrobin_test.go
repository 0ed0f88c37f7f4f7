package balance

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

var web = registry.Name{Namespace: registry.DefaultNamespace, Name: "web"}

// addr is a made-up endpoint that differs from the others by n.
func addr(n int) registry.Addr {
	return registry.Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 80)}
}

func addrs(ns ...int) []registry.Addr {
	var list []registry.Addr
	for _, n := range ns {
		list = append(list, addr(n))
	}
	return list
}

// setEndpoints tells lb the endpoints of the unnamed port of a service; none at all: the record is gone.
func setEndpoints(lb *LoadBalancerRR, name registry.Name, ns ...int) {
	var endpoints *registry.Endpoints
	if len(ns) > 0 {
		endpoints = &registry.Endpoints{Name: name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(addrs(ns...)...)}}}
	}
	lb.SetEndpoints(map[registry.Name]*registry.Endpoints{name: endpoints})
	lb.LetGo()
}

// chosen gives the numbers of the endpoints that n clients in a row are given.
func chosen(t *testing.T, r *Rotation, n int) []int {
	t.Helper()
	var got []int
	for range n {
		c := r.Choose(registry.TCP)
		e, ok := c.Next()
		if !ok {
			t.Fatal("no endpoint")
		}
		got = append(got, number(e))
	}
	return got
}

func number(e *Endpoint) int {
	ip := e.Addr.IP.Addr().As4()
	return int(ip[2])<<8 | int(ip[3])
}

func TestARotationWithoutEndpointsOffersNone(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	c := lb.Hold(registry.PortKey{Name: web}).Choose(registry.TCP)
	if e, ok := c.Next(); ok {
		t.Errorf("an unknown service offered %v", e.Addr)
	}
}

func TestOneEndpointIsGivenEveryTime(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setEndpoints(lb, web, 1)
	if got, want := chosen(t, lb.Hold(registry.PortKey{Name: web}), 3), []int{1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}

func TestEndpointsAreGivenInTurnFromTheFirst(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setEndpoints(lb, web, 1, 2, 3)
	if got, want := chosen(t, lb.Hold(registry.PortKey{Name: web}), 4), []int{1, 2, 3, 1}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}

func TestRandomStartBeginsAnywhereAndThenKeepsTheOrder(t *testing.T) {
	starts := map[int]bool{}
	for range 100 {
		lb := NewLoadBalancerRR(true)
		setEndpoints(lb, web, 0, 1, 2)
		got := chosen(t, lb.Hold(registry.PortKey{Name: web}), 3)
		starts[got[0]] = true
		if got[1] != (got[0]+1)%3 || got[2] != (got[0]+2)%3 {
			t.Fatalf("got %v, which is not in turn", got)
		}
	}
	if len(starts) != 3 { // 100 starts all alike for one of three: once in 10^17 runs
		t.Errorf("100 rotations began only at %v", starts)
	}
}

func TestAChangeGoesOnWithTheFirstSurvivorAtOrAfterTheNext(t *testing.T) {
	for _, c := range []struct {
		name          string
		before        []int
		given         int // how many clients came before the change
		after, given2 []int
	}{
		{"the next one survives", []int{1, 2, 3}, 1, []int{2, 3, 4}, []int{2, 3, 4}},
		{"the next one goes", []int{1, 2, 3}, 1, []int{1, 3}, []int{3, 1, 3}},
		{"the next two go", []int{1, 2, 3, 4}, 1, []int{4, 1}, []int{4, 1, 4}},
		{"one is added in front", []int{1, 2}, 1, []int{9, 1, 2}, []int{2, 9, 1}},
		{"the order changes too", []int{1, 2, 3}, 2, []int{3, 2, 5}, []int{3, 2, 5}},
		{"none survives", []int{1, 2, 3}, 2, []int{7, 8}, []int{7, 8, 7}},
		{"the same set in another order", []int{1, 2, 3}, 1, []int{3, 1, 2}, []int{2, 3, 1}},
		{"an equal set", []int{1, 2, 3}, 1, []int{1, 2, 3}, []int{2, 3, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			lb := NewLoadBalancerRR(false)
			setEndpoints(lb, web, c.before...)
			r := lb.Hold(registry.PortKey{Name: web})
			chosen(t, r, c.given)
			setEndpoints(lb, web, c.after...)
			if got := chosen(t, r, len(c.given2)); !slices.Equal(got, c.given2) {
				t.Errorf("%v, %d given, then %v: got %v; want %v", c.before, c.given, c.after, got, c.given2)
			}
		})
	}
}

func TestTwoServicesRotateIndependently(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	db := registry.Name{Namespace: "prod", Name: "db"}
	setEndpoints(lb, web, 1, 2, 3)
	setEndpoints(lb, db, 4, 5)
	r, s := lb.Hold(registry.PortKey{Name: web}), lb.Hold(registry.PortKey{Name: db})
	chosen(t, r, 1)
	chosen(t, s, 1)
	setEndpoints(lb, db) // gone
	if c := s.Choose(registry.TCP); c.set == nil || len(c.set.endpoints) != 0 {
		t.Error("a service without endpoints still offers one")
	}
	if got, want := chosen(t, r, 2), []int{2, 3}; !slices.Equal(got, want) {
		t.Errorf("the other service went on with %v; want %v", got, want)
	}
}

func TestPortsOfOneServiceRotateIndependently(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	tell := func(byPort ...registry.PortAddrs) {
		lb.SetEndpoints(map[registry.Name]*registry.Endpoints{web: {Name: web, ByPort: byPort}})
		lb.LetGo()
	}
	tell(registry.PortAddrs{Port: "http", Addrs: registry.NewAddrs(addrs(1, 2)...)}, registry.PortAddrs{Port: "https", Addrs: registry.NewAddrs(addrs(3, 4)...)})
	plain, secure := lb.Hold(registry.PortKey{Name: web, Port: "http"}), lb.Hold(registry.PortKey{Name: web, Port: "https"})
	chosen(t, plain, 1)
	tell(registry.PortAddrs{Port: "https", Addrs: registry.NewAddrs(addrs(3, 4)...)})
	if c := plain.Choose(registry.TCP); len(c.set.endpoints) != 0 {
		t.Error("a port without endpoints still offers one")
	}
	if got, want := chosen(t, secure, 2), []int{3, 4}; !slices.Equal(got, want) {
		t.Errorf("the other port gave %v; want %v", got, want)
	}
}

func TestFailoverOffersEachEndpointOnce(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setEndpoints(lb, web, 1, 2, 3)
	r := lb.Hold(registry.PortKey{Name: web})
	for range 50 { // also once all are known to be down
		c := r.Choose(registry.TCP)
		var got []int
		for e, ok := c.Next(); ok; e, ok = c.Next() {
			got = append(got, number(e))
			e.Failed(registry.TCP)
		}
		slices.Sort(got)
		if want := []int{1, 2, 3}; !slices.Equal(got, want) {
			t.Fatalf("offered %v; want each of %v once", got, want)
		}
	}
}

func TestAnEndpointThatFailsIsPassedOverForAGrowingWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lb := NewLoadBalancerRR(false)
		setEndpoints(lb, web, 1, 2)
		r := lb.Hold(registry.PortKey{Name: web})
		bad := r.awake().endpoints[1]
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			start := time.Now()
			bad.Failed(registry.TCP)
			bad.Failed(registry.TCP) // a second client that was refused meanwhile does not count
			if got := chosen(t, r, 4); slices.Contains(got, 2) {
				t.Fatalf("got %v although 2 is down", got)
			}
			for bad.down(registry.TCP) {
				time.Sleep(100 * time.Millisecond)
			}
			if got := time.Since(start); got != want*time.Second {
				t.Errorf("passed over for %v; want %v", got, want*time.Second)
			}
		}
		bad.Answered(registry.TCP)
		bad.Failed(registry.TCP)
		time.Sleep(health.FirstDown)
		if bad.down(registry.TCP) {
			t.Error("after a success the next wait was not the first again")
		}
	})
}

// A silent endpoint costs whoever tries it a quarter of a second, so when it is due back one client tries it,
// and not all that happen to come before that one knows.
func TestOneClientFindsOutWhetherAnEndpointHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lb := NewLoadBalancerRR(false)
		setEndpoints(lb, web, 1, 2, 3)
		r := lb.Hold(registry.PortKey{Name: web})
		bad := r.awake().endpoints[1]
		tried := func() (times int) {
			for _, n := range chosen(t, r, 30) {
				if n == 2 {
					times++
				}
			}
			return times
		}
		bad.Failed(registry.TCP)
		time.Sleep(health.FirstDown)
		if n := tried(); n != 1 {
			t.Errorf("due back, it was tried by %d clients; want one", n)
		}
		bad.Failed(registry.TCP)
		time.Sleep(2*health.FirstDown - 1)
		if n := tried(); n != 0 {
			t.Errorf("it failed on its return, and was tried by %d clients before twice the time was over", n)
		}
		time.Sleep(time.Nanosecond)
		if n := tried(); n != 1 {
			t.Errorf("due back again, it was tried by %d clients; want one", n)
		}
		time.Sleep(health.TrialTime) // that one went away, and nobody knows
		if n := tried(); n != 1 {
			t.Errorf("after nobody had found out, it was tried by %d clients; want one", n)
		}
		bad.Answered(registry.TCP)
		if n := tried(); n != 10 {
			t.Errorf("after it had answered, %d of 30 clients were given it; want its share", n)
		}
	})
}

func TestTheShareOfAnEndpointThatIsDownFallsOnAllOthers(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setEndpoints(lb, web, 1, 2, 3, 4)
	r := lb.Hold(registry.PortKey{Name: web})
	r.awake().endpoints[1].Failed(registry.TCP)
	count := map[int]int{}
	for _, n := range chosen(t, r, 300) {
		count[n]++
	}
	if count[1] != 100 || count[2] != 0 || count[3] != 100 || count[4] != 100 {
		t.Errorf("300 clients were given %v; want 100 each for 1, 3 and 4", count)
	}
}

func TestWhenAllAreDownTheFirstDueBackIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lb := NewLoadBalancerRR(false)
		setEndpoints(lb, web, 1, 2, 3)
		r := lb.Hold(registry.PortKey{Name: web})
		for _, i := range []int{2, 0, 1} { // 3 first
			r.awake().endpoints[i].Failed(registry.TCP)
			time.Sleep(time.Millisecond)
		}
		if got, want := chosen(t, r, 2), []int{3, 3}; !slices.Equal(got, want) {
			t.Errorf("got %v; want %v", got, want)
		}
	})
}

func TestHealthSurvivesAChangeOfEndpoints(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setEndpoints(lb, web, 1, 2)
	r := lb.Hold(registry.PortKey{Name: web})
	r.awake().endpoints[0].Failed(registry.TCP)
	setEndpoints(lb, web, 3, 1, 2)
	if got := chosen(t, r, 6); slices.Contains(got, 1) {
		t.Errorf("got %v although 1 is down", got)
	}
}

func TestAnEndpointThatLeavesIsGoneAndOneThatStaysIsNot(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setEndpoints(lb, web, 1, 2)
	r := lb.Hold(registry.PortKey{Name: web})
	one, two := r.awake().endpoints[0], r.awake().endpoints[1]
	setEndpoints(lb, web, 2, 3)
	if !one.Gone() || two.Gone() {
		t.Errorf("gone: 1 %v, 2 %v; want true, false", one.Gone(), two.Gone())
	}
}

func TestWhatGoesGoesLast(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setEndpoints(lb, web, 1)
	r := lb.Hold(registry.PortKey{Name: web})
	lb.SetEndpoints(map[registry.Name]*registry.Endpoints{web: nil})
	if got, want := chosen(t, r, 1), []int{1}; !slices.Equal(got, want) {
		t.Errorf("until the proxier has applied the batch: got %v; want %v", got, want)
	}
	lb.LetGo()
	if n := len(r.awake().endpoints); n != 0 {
		t.Errorf("after that %d endpoints are left; want 0", n)
	}
}

func TestARotationIsForgottenWhenNobodyNeedsIt(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setEndpoints(lb, web, 1)
	r := lb.Hold(registry.PortKey{Name: web})
	setEndpoints(lb, web)
	if lb.Hold(registry.PortKey{Name: web}) != r {
		t.Error("a rotation that is held was replaced")
	}
	lb.Release(r)
	lb.Release(r)
	if n := len(lb.services); n != 0 {
		t.Errorf("%d services are remembered; want 0", n)
	}
}

// D32: v0.4 read the cursor and wrote it back under two locks, and indexed past the end of a list
// that had shrunk in between.
func TestChoosingWhileEndpointsChangeAlwaysFindsOne(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setEndpoints(lb, web, 1, 2, 3, 4, 5)
	r := lb.Hold(registry.PortKey{Name: web})
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				c := r.Choose(registry.TCP)
				if _, ok := c.Next(); !ok {
					t.Error("no endpoint")
					return
				}
			}
		})
	}
	for i := range 2000 {
		setEndpoints(lb, web, []int{1, 2, 3, 4, 5}[:1+i%5]...)
	}
	close(done)
	wg.Wait()
}

// Most services are never used at a given node. What changes there costs no more than the list of addresses does.
func TestEndpointsThatNoClientAsksForAreNotMade(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	r := lb.Hold(registry.PortKey{Name: web})
	for _, list := range [][]int{{1, 2}, {3, 4, 5}, {5, 3}} {
		setEndpoints(lb, web, list...)
		if set := r.set.Load(); set.endpoints != nil || set.addrs.Len() != len(list) {
			t.Errorf("of %v there are %d endpoints, and %d addresses that none were made of", list, len(set.endpoints), set.addrs.Len())
		}
		var told []registry.Addr
		for _, s := range lb.Status() {
			told = append(told, s.Addr)
		}
		if !slices.Equal(told, addrs(list...)) {
			t.Errorf("the status of %v tells of %v", list, told)
		}
	}
	if r.IsEmpty() {
		t.Error("there are addresses, and it is called empty")
	}
	if got, want := chosen(t, r, 3), []int{5, 3, 5}; !slices.Equal(got, want) {
		t.Errorf("the first clients were given %v; want %v", got, want)
	}
	setEndpoints(lb, web, 6, 7) // nobody stays, and nobody has asked since
	if set := r.set.Load(); set.endpoints != nil {
		t.Error("where all endpoints were replaced there are new ones before a client asks")
	}
	setEndpoints(lb, web)
	if !r.IsEmpty() {
		t.Error("without addresses it is not called empty")
	}
}

// However clients come while a set changes: an endpoint that they were given is the rotation's own, or known to be gone.
// Else its connections would outlive it, and nobody would know how it is.
func TestTheFirstClientsAreGivenEndpointsThatLaterSetsKnow(t *testing.T) {
	for range 2000 {
		lb := NewLoadBalancerRR(false)
		r := lb.Hold(registry.PortKey{Name: web})
		setEndpoints(lb, web, 1, 2)
		var given [3]*Endpoint
		var clients sync.WaitGroup
		for i := range given {
			clients.Go(func() {
				c := r.Choose(registry.TCP)
				given[i], _ = c.Next()
			})
		}
		setEndpoints(lb, web, 2, 3)
		clients.Wait()
		known := r.awake().endpoints
		for _, e := range given {
			if !slices.Contains(known, e) && !e.Gone() {
				t.Fatalf("a client was given endpoint %d, which the rotation does not know", number(e))
			}
		}
	}
}

func TestChoosingAllocatesNothing(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setEndpoints(lb, web, 1, 2, 3)
	r := lb.Hold(registry.PortKey{Name: web})
	if n := testing.AllocsPerRun(1000, func() {
		c := r.Choose(registry.TCP)
		c.Next()
	}); n != 0 {
		t.Errorf("%v allocations for each choice; want 0", n)
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint("endpoints=", n), func(b *testing.B) {
			lb := NewLoadBalancerRR(false)
			var ns []int
			for i := range n {
				ns = append(ns, i)
			}
			setEndpoints(lb, web, ns...)
			r := lb.Hold(registry.PortKey{Name: web})
			b.ReportAllocs()
			for b.Loop() {
				c := r.Choose(registry.TCP)
				c.Next()
			}
		})
	}
}

// Whatever the order in which a service's ports come and go, each is found, and only what nobody needs is forgotten.
func TestOneOfSeveralPortsIsForgottenAlone(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	held := make(map[string]*Rotation)
	for _, port := range []string{"m", "z", "a", "", "q"} {
		held[port] = lb.Hold(registry.PortKey{Name: web, Port: port})
	}
	for _, port := range []string{"q", "", "m"} {
		lb.Release(held[port])
		delete(held, port)
		if len(lb.services[web]) != len(held) {
			t.Fatalf("%d rotations are left; want %d", len(lb.services[web]), len(held))
		}
		for port, r := range held {
			if again := lb.Hold(registry.PortKey{Name: web, Port: port}); again != r {
				t.Errorf("port %q has another rotation than before", port)
			}
			lb.Release(r)
		}
	}
}

// A connection, or a client's affinity, may keep an endpoint for long, and should not keep the list of its record for its sake.
func TestAnEndpointKeepsNothingOfItsRecord(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	r := lb.Hold(registry.PortKey{Name: web})
	list := registry.NewAddrs(registry.Addr{IP: netip.AddrPortFrom(netip.Addr{}, 80), Host: "web-1"}, addr(2))
	lb.SetEndpoints(map[registry.Name]*registry.Endpoints{web: {Name: web, ByPort: []registry.PortAddrs{{Addrs: list}}}})
	inRecord := slices.Collect(list.All())[0]
	got := r.awake().endpoints[0].Addr
	if got != inRecord {
		t.Errorf("the endpoint is %v; want %v", got, inRecord)
	}
	if unsafe.StringData(got.Host) == unsafe.StringData(inRecord.Host) {
		t.Error("the endpoint's host name lies in the list")
	}
}

// A claim in vain has a rotation too, and one record can make a thousand of them: without endpoints, a rotation is nothing but itself.
func TestARotationWithoutEndpointsIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Rotation{}); size > 112 {
		t.Errorf("a rotation has %d bytes; want 112 at most", size)
	}
	lb := NewLoadBalancerRR(false)
	one, other := lb.Hold(registry.PortKey{Name: web}), lb.Hold(registry.PortKey{Name: registry.Name{Namespace: registry.DefaultNamespace, Name: "other"}})
	if one.set.Load() != other.set.Load() {
		t.Error("each rotation has an empty set of its own")
	}
	setEndpoints(lb, web, 1)
	if c := other.Choose(registry.TCP); !other.IsEmpty() || len(chosen(t, one, 1)) != 1 {
		t.Error("an endpoint of one rotation is not its own")
	} else if e, ok := c.Next(); ok {
		t.Errorf("a rotation without endpoints gives out %v", e.Addr)
	}
}
