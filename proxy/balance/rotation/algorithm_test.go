package rotation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/registry"
)

// numbers are the first n endpoints.
func numbers(n int) (ns []int) {
	for i := range n {
		ns = append(ns, i+1)
	}
	return ns
}

// chosenBy returns the endpoints that an algorithm gives to clients, each of which is served at the first that is offered.
func chosenBy(t *testing.T, r *Rotation, by registry.Balance, clients int) (ns []int) {
	t.Helper()
	for i := range clients {
		c := r.ChooseFor(registry.TCP, person(i), &registry.Terms{Balance: by}, nil)
		e, ok := c.Next()
		if !ok {
			t.Fatalf("client %d was offered nothing", i)
		}
		ns = append(ns, number(e))
	}
	return ns
}

func TestClientsAreSpreadByTheirAddressesAlikeOnEveryNode(t *testing.T) {
	const clients = 20000
	ns := numbers(10)
	one := rotationBy(NewRules(true), addrs(ns...)...)
	slices.Reverse(ns)
	other := rotationBy(NewRules(true), addrs(ns...)...) // the order of a record does not matter
	a := chosenBy(t, one, registry.SourceAddress, clients)
	if b := chosenBy(t, other, registry.SourceAddress, clients); !slices.Equal(a, b) {
		t.Error("two nodes give clients different endpoints")
	}
	for n, got := range share(a) {
		if got < 0.06 || got > 0.14 {
			t.Errorf("endpoint %d has %.3f of the clients; want about 0.1", n, got)
		}
	}
}

// share is the part of the clients that each endpoint was given.
func share(chosen []int) map[int]float64 {
	of := make(map[int]float64)
	for _, n := range chosen {
		of[n] += 1 / float64(len(chosen))
	}
	return of
}

func TestAnEndpointThatLeavesMovesOnlyItsOwnClients(t *testing.T) {
	const clients, endpoints = 50000, 1000
	rules := NewRules(false)
	ns := numbers(endpoints)
	r := rotationBy(rules, addrs(ns...)...)
	before := chosenBy(t, r, registry.SourceAddress, clients)
	for _, gone := range []int{1, 500, endpoints} {
		setEndpoints(r, slices.Concat(ns[:gone-1], ns[gone:])...)
		moved := 0
		for i, n := range chosenBy(t, r, registry.SourceAddress, clients) {
			switch {
			case n == gone:
				t.Fatalf("client %d was given endpoint %d, which has left", i, gone)
			case n != before[i] && before[i] != gone:
				t.Fatalf("client %d moved from endpoint %d to %d when endpoint %d left", i, before[i], n, gone)
			case n != before[i]:
				moved++
			}
		}
		if moved > clients*2/1000 {
			t.Errorf("endpoint %d took %d of %d clients with it; want 0.2 %% at most", gone, moved, clients)
		}
		setEndpoints(r, ns...)
		if again := chosenBy(t, r, registry.SourceAddress, clients); !slices.Equal(again, before) {
			t.Errorf("clients are elsewhere after endpoint %d came back", gone)
		}
	}
}

func TestOnlyClientsOfAnEjectedEndpointGoElsewhereAndAllNodesAgreeWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // or the ejection would end
		const clients = 2000
		var after [2][]int
		for node := range after {
			r := rotationBy(NewRules(true), addrs(numbers(10)...)...)
			before := chosenBy(t, r, registry.SourceAddress, clients)
			for _, e := range r.Endpoints() {
				if n := number(e); n == 3 || n == 7 {
					e.Failed(registry.TCP)
				}
			}
			after[node] = chosenBy(t, r, registry.SourceAddress, clients)
			for i, n := range after[node] {
				if wasWell := before[i] != 3 && before[i] != 7; n == 3 || n == 7 || wasWell && n != before[i] {
					t.Fatalf("client %d was given endpoint %d, and before that %d", i, n, before[i])
				}
			}
		}
		if !slices.Equal(after[0], after[1]) {
			t.Error("two nodes give clients different endpoints")
		}
	})
}

func TestEachAlgorithmOffersAllEndpointsOnceToAClientThatNoneServes(t *testing.T) {
	for _, by := range registry.Balances() {
		for _, n := range []int{1, 2, 10} {
			r := rotationBy(NewRules(true), addrs(numbers(n)...)...)
			c := r.ChooseFor(registry.TCP, person(1), &registry.Terms{Balance: by}, nil)
			var offered []int
			for e, ok := c.Next(); ok; e, ok = c.Next() {
				offered = append(offered, number(e))
				c.Failed(e)
			}
			if slices.Sort(offered); !slices.Equal(offered, numbers(n)) {
				t.Errorf("%v: was offered %v of %d", by, offered, n)
			}
		}
	}
}

func TestTheDefaultAlgorithmIsThatOfServicesThatNameNone(t *testing.T) {
	rules := NewRules(false)
	rules.Balance = registry.SourceAddress
	r := rotationBy(rules, addrs(numbers(10)...)...)
	if unsaid, source := chosenBy(t, r, registry.BalanceUnsaid, 100), chosenBy(t, r, registry.SourceAddress, 100); !slices.Equal(unsaid, source) {
		t.Error("a service that names no algorithm does not get the default")
	}
	if got := chosenBy(t, r, registry.RoundRobin, 3); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("a service that wants round robin was given %v", got)
	}
}

// simulate returns how long the slowest hundredth of 20,000 clients takes at least. Of ten endpoints, each serves one client after the
// other, in 1 ms, and one of them in 20 ms. A tenth of the clients is half of what a fast endpoint can serve.
func simulate(by registry.Balance) (p99 time.Duration) {
	const clients = 20000
	r := numbered(numbers(10)...)
	random := rand.New(rand.NewPCG(1, 2))
	free := make(map[*Endpoint]time.Duration)     // when it has served all that it was given
	serves := make(map[*Endpoint][]time.Duration) // when each of those ends
	var now time.Duration
	var took []time.Duration
	for i := range clients {
		now += time.Duration(random.ExpFloat64() * float64(time.Millisecond) / 5)
		for e, ends := range serves {
			for len(ends) > 0 && ends[0] <= now {
				e.Left(false)
				ends = ends[1:]
			}
			serves[e] = ends
		}
		c := r.ChooseFor(registry.TCP, person(i), &registry.Terms{Balance: by}, nil)
		e, _ := c.Next()
		give(e)
		needs := time.Millisecond
		if number(e) == 4 {
			needs *= 20
		}
		free[e] = max(free[e], now) + needs
		serves[e] = append(serves[e], free[e])
		took = append(took, free[e]-now)
	}
	slices.Sort(took)
	return took[clients*99/100]
}

func TestLeastConnectionsKeepsMostClientsFromASlowEndpoint(t *testing.T) {
	roundRobin, least := simulate(registry.RoundRobin), simulate(registry.LeastConnections)
	t.Logf("99th percentile: round robin %v, least connections %v", roundRobin, least)
	if least > roundRobin/2 {
		t.Errorf("99th percentile %v; want half of round robin's %v at most", least, roundRobin)
	}
}

func TestLeastConnectionsSkipsAnEjectedEndpointThatHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := numbered(1, 2)
		well, ejected := r.Endpoints()[0], r.Endpoints()[1]
		give(well)
		ejected.Failed(registry.TCP)
		for _, n := range chosenBy(t, r, registry.LeastConnections, 20) {
			if n != 1 {
				t.Fatalf("a client was given endpoint %d", n)
			}
		}
	})
}

func TestNoAlgorithmAllocates(t *testing.T) {
	for _, by := range registry.Balances() {
		r := numbered(numbers(10)...)
		terms, client := registry.Terms{Balance: by}, person(1)
		if n := testing.AllocsPerRun(1000, func() {
			c := r.ChooseFor(registry.TCP, client, &terms, nil)
			c.Next()
		}); n != 0 {
			t.Errorf("%v: %v allocations for each choice; want 0", by, n)
		}
	}
}

func BenchmarkAlgorithms(b *testing.B) {
	for _, by := range registry.Balances() {
		for _, n := range []int{10, 100, 1000, 10000} {
			b.Run(fmt.Sprintf("%v/endpoints=%d", by, n), func(b *testing.B) {
				r := numbered(numbers(n)...)
				terms := registry.Terms{Balance: by}
				for _, e := range r.Endpoints() {
					give(e)
				}
				var clients [256]netip.Addr
				for i := range clients {
					clients[i] = person(i)
				}
				i := 0
				b.ReportAllocs()
				for b.Loop() {
					c := r.ChooseFor(registry.TCP, clients[i%len(clients)], &terms, nil)
					c.Next()
					i++
				}
			})
		}
	}
}

// As many clients as endpoints come, stay until all have come, and leave. None of a few endpoints stays without one.
func TestLeastConnectionsComparesFewEndpointsExactly(t *testing.T) {
	for _, weights := range [][]int{nil, {1, 2, 3, 4, 5}} {
		for _, n := range []int{2, 5, fewEndpoints} {
			if weights != nil && n != len(weights) {
				continue
			}
			r := numbered(numbers(n)...)
			if weights != nil {
				r = weighted(t, weights...)
			}
			clients := n
			if weights != nil {
				clients = 15
			}
			for round := range 3 * n {
				given := make(map[*Endpoint]int)
				for i := range clients {
					c := r.ChooseFor(registry.TCP, person(i), &registry.Terms{Balance: registry.LeastConnections}, nil)
					e, _ := c.Next()
					give(e)
					given[e]++
				}
				for _, e := range r.Endpoints() {
					want := 1
					if weights != nil {
						want = weights[e.at[0].Load()]
					}
					if given[e] != want {
						t.Fatalf("weights %v, round %d: endpoint %d has %d of %d clients; want %d", weights, round, number(e), given[e], clients, want)
					}
					for range given[e] {
						e.Left(false)
					}
				}
			}
		}
	}
	if got, want := chosenBy(t, numbered(1, 2, 3), registry.LeastConnections, 6), []int{1, 2, 3, 1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("endpoints without clients are given %v; want %v", got, want)
	}
}

// give has an endpoint be given a client.
func give(e *Endpoint) {
	if err := e.BeginDial(math.MaxInt64); err == nil {
		e.Given()
	}
}

// The next points on the ring are those of the heavy endpoint, too, and nodes have given turns to different clients before.
func TestAllNodesAgreeOnTheClientsOfAHeavyEndpointThatIsEjected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // or the ejection would end
		var first []int
		for earlier := range 8 {
			r := weighted(t, 256, 1, 1)
			r.Endpoints()[0].Failed(registry.TCP)
			chosenBy(t, r, registry.SourceAddress, earlier)
			given := chosenBy(t, r, registry.SourceAddress, 2000)
			if first == nil {
				first = given
			}
			if !slices.Equal(given, first) {
				t.Errorf("after %d clients a node gives those who come other endpoints than one that has had none", earlier)
			}
			for n, part := range share(given) {
				if n == 1 || part < 0.2 {
					t.Errorf("endpoint %d has %.2f of the clients", n, part)
				}
			}
		}
	})
}
