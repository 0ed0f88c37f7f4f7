package rotation

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

// setEndpoints gives a rotation its endpoints; none at all: the record is gone.
func setEndpoints(r *Rotation, ns ...int) {
	r.Replace(registry.PortAddrs{Addrs: registry.NewAddrs(addrs(ns...)...)}, "")
}

// rotationBy makes a rotation of endpoints.
func rotationBy(rules *Rules, addrs ...registry.Addr) *Rotation {
	r := New(rules, registry.PortKey{Name: web})
	r.Replace(registry.PortAddrs{Addrs: registry.NewAddrs(addrs...)}, "")
	return r
}

// rotationOf makes a rotation of endpoints that begins with the first.
func rotationOf(addrs ...registry.Addr) *Rotation { return rotationBy(NewRules(false), addrs...) }

// numbered makes a rotation of numbered endpoints that begins with the first.
func numbered(ns ...int) *Rotation { return rotationOf(addrs(ns...)...) }

// chosen gives the numbers of the endpoints that n clients in a row are given.
func chosen(t *testing.T, r *Rotation, n int) []int {
	t.Helper()
	var got []int
	for range n {
		c := r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
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
	c := New(NewRules(false), registry.PortKey{Name: web}).ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
	if e, ok := c.Next(); ok {
		t.Errorf("an unknown service offered %v", e.Addr)
	}
}

func TestOneEndpointIsGivenEveryTime(t *testing.T) {
	r := numbered(1)
	if got, want := chosen(t, r, 3), []int{1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}

func TestEndpointsAreGivenInTurnFromTheFirst(t *testing.T) {
	r := numbered(1, 2, 3)
	if got, want := chosen(t, r, 4), []int{1, 2, 3, 1}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}

func TestRandomStartBeginsAnywhereAndThenKeepsTheOrder(t *testing.T) {
	starts := map[int]bool{}
	for range 100 {
		r := rotationBy(NewRules(true), addrs(0, 1, 2)...)
		got := chosen(t, r, 3)
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
			r := numbered(c.before...)
			chosen(t, r, c.given)
			setEndpoints(r, c.after...)
			if got := chosen(t, r, len(c.given2)); !slices.Equal(got, c.given2) {
				t.Errorf("%v, %d given, then %v: got %v; want %v", c.before, c.given, c.after, got, c.given2)
			}
		})
	}
}

func TestFailoverOffersEachEndpointOnce(t *testing.T) {
	r := numbered(1, 2, 3)
	for range 50 { // also once all are known to be down
		c := r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
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

func TestAnEndpointThatFailsIsEjectedForAGrowingWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := numbered(1, 2)
		bad := r.awake().endpoints[1]
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			start := time.Now()
			bad.Failed(registry.TCP)
			bad.Failed(registry.TCP) // a second client that was refused meanwhile does not count
			if got := chosen(t, r, 4); slices.Contains(got, 2) {
				t.Fatalf("got %v although 2 is down", got)
			}
			for bad.isEjected(registry.TCP) {
				time.Sleep(100 * time.Millisecond)
			}
			if got := time.Since(start); got != want*time.Second {
				t.Errorf("ejected for %v; want %v", got, want*time.Second)
			}
		}
		bad.Answered(registry.TCP)
		bad.Failed(registry.TCP)
		time.Sleep(health.FirstEjection)
		if bad.isEjected(registry.TCP) {
			t.Error("after a success the next wait was not the first again")
		}
	})
}

// A silent endpoint costs the client that tries it a quarter of a second, so when it is due back one client tries it,
// and not all that happen to come before that one knows.
func TestOneClientFindsOutWhetherAnEndpointHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := numbered(1, 2, 3)
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
		time.Sleep(health.FirstEjection)
		if n := tried(); n != 1 {
			t.Errorf("due back, it was tried by %d clients; want one", n)
		}
		bad.Failed(registry.TCP)
		time.Sleep(2*health.FirstEjection - 1)
		if n := tried(); n != 0 {
			t.Errorf("it failed on its return, and was tried by %d clients before twice the time was over", n)
		}
		time.Sleep(time.Nanosecond)
		if n := tried(); n != 1 {
			t.Errorf("due back again, it was tried by %d clients; want one", n)
		}
		time.Sleep(health.HalfOpenTime) // that one went away, and has found out nothing
		if n := tried(); n != 1 {
			t.Errorf("after the first had found out nothing, it was tried by %d clients; want one", n)
		}
		bad.Answered(registry.TCP)
		if n := tried(); n != 10 {
			t.Errorf("after it had answered, %d of 30 clients were given it; want its share", n)
		}
	})
}

func TestTheShareOfAnEndpointThatIsDownFallsOnAllOthers(t *testing.T) {
	r := numbered(1, 2, 3, 4)
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
		r := numbered(1, 2, 3)
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
	r := numbered(1, 2)
	r.awake().endpoints[0].Failed(registry.TCP)
	setEndpoints(r, 3, 1, 2)
	if got := chosen(t, r, 6); slices.Contains(got, 1) {
		t.Errorf("got %v although 1 is down", got)
	}
}

func TestAnEndpointThatLeavesIsGoneAndOneThatStaysIsNot(t *testing.T) {
	r := numbered(1, 2)
	one, two := r.awake().endpoints[0], r.awake().endpoints[1]
	setEndpoints(r, 2, 3)
	if !one.Gone() || two.Gone() {
		t.Errorf("gone: 1 %v, 2 %v; want true, false", one.Gone(), two.Gone())
	}
}

// D32: v0.4 read the cursor and wrote it back under two locks, and indexed past the end of a list
// that had shrunk in between.
func TestChoosingWhileEndpointsChangeAlwaysFindsOne(t *testing.T) {
	r := numbered(1, 2, 3, 4, 5)
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
				c := r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
				if _, ok := c.Next(); !ok {
					t.Error("no endpoint")
					return
				}
			}
		})
	}
	for i := range 2000 {
		setEndpoints(r, []int{1, 2, 3, 4, 5}[:1+i%5]...)
	}
	close(done)
	wg.Wait()
}

// Most services are never used at a given node. What changes there costs no more than the list of addresses does.
func TestEndpointsThatNoClientAsksForAreNotMade(t *testing.T) {
	r := numbered()
	for _, list := range [][]int{{1, 2}, {3, 4, 5}, {5, 3}} {
		setEndpoints(r, list...)
		if set := r.set.Load(); set.endpoints != nil || set.addrs.Len() != len(list) {
			t.Errorf("of %v there are %d endpoints, and %d addresses that none were made of", list, len(set.endpoints), set.addrs.Len())
		}
		var told []registry.Addr
		each, _, _ := r.EndpointStatus()
		for s := range each {
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
	setEndpoints(r, 6, 7) // none stays, and no client has come since
	if set := r.set.Load(); set.endpoints != nil {
		t.Error("where all endpoints were replaced there are new ones before a client asks")
	}
	setEndpoints(r)
	if !r.IsEmpty() {
		t.Error("without addresses it is not called empty")
	}
}

// However clients come while a set changes: an endpoint that they were given is the rotation's own, or known to be gone.
// Else its connections would outlive it, and its health would not be known.
func TestTheFirstClientsAreGivenEndpointsThatLaterSetsKnow(t *testing.T) {
	for range 2000 {
		r := numbered()
		setEndpoints(r, 1, 2)
		var given [3]*Endpoint
		var clients sync.WaitGroup
		for i := range given {
			clients.Go(func() {
				c := r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
				given[i], _ = c.Next()
			})
		}
		setEndpoints(r, 2, 3)
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
	r := numbered(1, 2, 3)
	if n := testing.AllocsPerRun(1000, func() {
		c := r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
		c.Next()
	}); n != 0 {
		t.Errorf("%v allocations for each choice; want 0", n)
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint("endpoints=", n), func(b *testing.B) {
			rules := NewRules(false)
			var ns []int
			for i := range n {
				ns = append(ns, i)
			}
			r := rotationBy(rules, addrs(ns...)...)
			b.ReportAllocs()
			for b.Loop() {
				c := r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
				c.Next()
			}
		})
	}
}

// A connection, or a client's affinity, may keep an endpoint for long, and should not keep the list of its record for its sake.
func TestAnEndpointKeepsNothingOfItsRecord(t *testing.T) {
	r := numbered()
	list := registry.NewAddrs(registry.Addr{IP: netip.AddrPortFrom(netip.Addr{}, 80), Host: "web-1"}, addr(2))
	r.Replace(registry.PortAddrs{Addrs: list}, "")
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
	one, other := New(NewRules(false), registry.PortKey{Name: web}), New(NewRules(false), registry.PortKey{Name: web})
	if one.set.Load() != other.set.Load() {
		t.Error("each rotation has an empty set of its own")
	}
	setEndpoints(one, 1)
	if c := other.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil); !other.IsEmpty() || len(chosen(t, one, 1)) != 1 {
		t.Error("an endpoint of one rotation is not its own")
	} else if e, ok := c.Next(); ok {
		t.Errorf("a rotation without endpoints gives out %v", e.Addr)
	}
}
