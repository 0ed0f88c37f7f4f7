package rotation

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// rotationOfSize makes a rotation of n endpoints.
func rotationOfSize(n int) *Rotation {
	list := make([]registry.Addr, n)
	for i := range list {
		list[i] = registry.Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 80)}
	}
	return rotationOf(list...)
}

// offeredTo lists the endpoints that one client is offered when all of them fail.
func offeredTo(r *Rotation, protocol registry.Protocol) (all []*Endpoint) {
	c := r.ChooseFor(protocol, netip.Addr{}, registry.NoTerms, nil)
	for e, ok := c.Next(); ok; e, ok = c.Next() {
		all = append(all, e)
		c.Failed(e)
	}
	return all
}

// TestTheCostOfAnAttemptDoesNotDependOnTheNumberOfEndpoints counts the endpoints that are considered while all fail: by the
// first clients, who find endpoints that were not tried before, and by those who come when all are ejected.
func TestTheCostOfAnAttemptDoesNotDependOnTheNumberOfEndpoints(t *testing.T) {
	for _, protocol := range []registry.Protocol{registry.TCP, registry.UDP} {
		for _, n := range []int{50, 5_000, 100_000} {
			t.Run(fmt.Sprint(protocol, " ", n), func(t *testing.T) {
				r := rotationOfSize(n)
				set := r.awake()
				considered := func(clients int) uint64 {
					before := set.seenBy(0).tiers[0].roster(protocol).looks
					for range clients {
						if got := offeredTo(r, protocol); len(got) != MaxOffers {
							t.Fatalf("a client was offered %d endpoints, want %d", len(got), MaxOffers)
						}
					}
					return set.seenBy(0).tiers[0].roster(protocol).looks - before
				}
				const clients = 2
				if got := considered(clients); got > clients*MaxOffers*2 {
					t.Errorf("%d clients had %d endpoints considered", clients, got)
				}
				for _, e := range set.endpoints {
					e.Failed(protocol)
				}
				// Of those that return first, a client skips the ones that it was offered.
				if got := considered(clients); got > clients*MaxOffers*MaxOffers {
					t.Errorf("%d clients had %d endpoints considered when all were ejected", clients, got)
				}
			})
		}
	}
}

func BenchmarkFailoverWhenAllAreEjected(b *testing.B) {
	for _, n := range []int{100, 5_000, 100_000} {
		b.Run(fmt.Sprint("endpoints=", n), func(b *testing.B) {
			r := rotationOfSize(n)
			for _, e := range r.awake().endpoints {
				e.Failed(registry.TCP)
			}
			for b.Loop() {
				offeredTo(r, registry.TCP)
			}
		})
	}
}

// TestAClientIsOfferedSixteenEndpointsAndTheNextClientOthers: so a client costs a bounded amount, and those who follow
// find what works behind any number of endpoints that do not.
func TestAClientIsOfferedSixteenEndpointsAndTheNextClientOthers(t *testing.T) {
	r := rotationOfSize(10 * MaxOffers)
	seen := make(map[*Endpoint]bool)
	for range 10 {
		for _, e := range offeredTo(r, registry.TCP) {
			seen[e] = true
		}
	}
	if len(seen) != 10*MaxOffers {
		t.Errorf("ten clients were offered %d endpoints, want all %d", len(seen), 10*MaxOffers)
	}
}

func TestEndpointsThatAreNotAllowedCostAClientNothing(t *testing.T) {
	rules := NewRules(false)
	rules.Allowed = []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32")}
	ns := make([]int, 60_000)
	for i := range ns {
		ns[i] = i
	}
	r := rotationBy(rules, addrs(ns...)...)
	for range 100 {
		if got := offeredTo(r, registry.TCP); len(got) != 1 || number(got[0]) != 7 {
			t.Fatalf("a client was offered %d endpoints, want the one that is allowed", len(got))
		}
		r.awake().endpoints[7].Answered(registry.TCP)
	}
	if got := r.awake().seenBy(0).tiers[0].roster(registry.TCP).looks; got > 300 {
		t.Errorf("100 clients had %d endpoints considered", got)
	}

	setEndpoints(r, ns[100:]...) // all are refused: one is offered, and says why
	if got := offeredTo(r, registry.TCP); len(got) != 1 || !got[0].forbidden {
		t.Errorf("of endpoints that are not allowed a client was offered %d, want one", len(got))
	}
}

// TestAnEndpointThatIsUnusableReturnsAndKeepsItsHealth: a name that was not resolved says nothing about the endpoint.
func TestAnEndpointThatIsUnusableReturnsAndKeepsItsHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rotationOf(addrs(1, 2)...)
		c := r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
		e, _ := c.Next()
		c.Unusable(e, traffic.NameFailed)
		if got := chosen(t, r, 4); slices.Contains(got, number(e)) {
			t.Errorf("got %v although %d cannot be used", got, number(e))
		}
		if e.isEjected(registry.TCP) || e.stats().failures.Load() != 0 {
			t.Error("it is blamed")
		}
		time.Sleep(health.AsideFor)
		if got := chosen(t, r, 4); !slices.Contains(got, number(e)) {
			t.Errorf("got %v although %d can be tried again", got, number(e))
		}
	})
}

// TestAChoiceGoesOnWithTheEndpointsOfTheMoment: those that were removed meanwhile are not tried any more, and those that came are.
func TestAChoiceGoesOnWithTheEndpointsOfTheMoment(t *testing.T) {
	r := numbered(1, 2, 3)
	c := r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
	e, _ := c.Next()
	c.Failed(e)
	setEndpoints(r, 1, 4)
	var got []int
	for e, ok := c.Next(); ok; e, ok = c.Next() {
		got = append(got, number(e))
		c.Failed(e)
	}
	if !slices.Equal(got, []int{4}) {
		t.Errorf("after 1 it was offered %v, want 4", got)
	}
	setEndpoints(r)
	if e, ok := c.Next(); ok {
		t.Errorf("it was offered %d although the record is gone", number(e))
	}
}

// TestAChoiceEndsWithTheServiceItIsFor: a client of a service that has left its port is offered nothing more.
func TestAChoiceEndsWithTheServiceItIsFor(t *testing.T) {
	s := newStickyPort(t, 1, 2, 3)
	s.affinity, s.lifetime = 0, new(removal.Lifetime)
	c := s.choose(person(1))
	if _, ok := c.Next(); !ok {
		t.Fatal("nothing was offered")
	}
	s.lifetime.End(removal.Policy{}, traffic.ServiceRemoved, 0)
	if e, ok := c.Next(); ok {
		t.Errorf("it was offered %d", number(e))
	}
}

// TestARosterAgreesWithHealth: whatever happens to endpoints, each is either ready or ejected until the time that its health says.
func TestARosterAgreesWithHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		r := rotationOfSize(200)
		set := r.awake()
		ro := set.seenBy(0).tiers[0].roster(registry.TCP)
		for range 20_000 {
			e := set.endpoints[random.IntN(len(set.endpoints))]
			switch random.IntN(6) {
			case 0, 1:
				e.Failed(registry.TCP)
			case 2:
				e.Answered(registry.TCP)
			case 3:
				e.setAside(registry.TCP, traffic.NameFailed)
			case 4:
				offeredTo(r, registry.TCP)
			case 5:
				time.Sleep(time.Duration(random.IntN(int(time.Second))))
			}
			ro.index.Readmit(monotonic.Now())
			for at, e := range set.endpoints {
				ready, returns := ro.index.Next(at) == at, e.returns(registry.TCP)
				if ready && returns != 0 && returns > monotonic.Now() {
					t.Fatalf("endpoint %d is ready before it returns", at)
				}
				if !ready && returns == 0 {
					t.Fatalf("endpoint %d is ejected, and well", at)
				}
			}
		}
	})
}
