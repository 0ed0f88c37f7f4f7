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
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

const (
	inZone    = registry.InZone | registry.ForZone
	outOfZone = registry.OutOfZone | registry.ForOtherZone
)

// placed makes a rotation of numbered endpoints at these places, on node n in zone z. Endpoint 1 is at the first place.
func placed(places ...registry.Place) *Rotation {
	rules := NewRules(false)
	rules.Node = registry.Node{Name: "n", Zone: "z"}
	r := New(rules, registry.PortKey{Name: web})
	place(r, places...)
	return r
}

// place changes the places of the endpoints.
func place(r *Rotation, places ...registry.Place) {
	list := registry.PortAddrs{}
	var all []registry.Addr
	for i := range places {
		all = append(all, addr(i+1))
	}
	list.Addrs = registry.NewAddrs(all...)
	i := -1
	list.Places = registry.PlacesOf(list.Addrs, func(registry.Addr) registry.Place { i++; return places[i] })
	r.Replace(list, "")
}

// given returns the numbers of the endpoints that n clients of a service with these terms are given, sorted and each once.
func given(t *testing.T, r *Rotation, n int, terms registry.Terms) (got []int) {
	t.Helper()
	for i := range n {
		c := r.ChooseFor(registry.TCP, person(i), &terms, nil)
		if e, ok := c.Next(); ok {
			got = append(got, number(e))
		}
	}
	slices.Sort(got)
	return slices.Compact(got)
}

func TestClientsAreGivenEndpointsInTheirZoneWhileOneIsReady(t *testing.T) {
	for _, by := range registry.Balances() {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := placed(outOfZone, inZone, outOfZone, inZone)
				expect := func(when string, want ...int) {
					t.Helper()
					if got := given(t, r, 40, registry.Terms{Balance: by}); !slices.Equal(got, want) {
						t.Errorf("%s clients are given %v; want %v", when, got, want)
					}
				}
				e := r.Endpoints()
				expect("at first", 2, 4)
				e[1].Failed(registry.TCP)
				expect("when one in the zone has failed", 4)
				e[3].Failed(registry.TCP)
				expect("when both have", 1, 3)
				if s := r.Status(); !s.Spilling || s.Near != 2 || s.Condition != health.Served {
					t.Errorf("the status says %+v", s)
				}
				e[0].Failed(registry.TCP)
				e[2].Failed(registry.TCP)
				if got := given(t, r, 40, registry.Terms{Balance: by}); len(got) == 0 {
					t.Error("when all have failed clients are given none")
				}
				e[3].Answered(registry.TCP)
				expect("when one in the zone is back", 4)
				if s := r.Status(); s.Spilling {
					t.Errorf("the status still says %+v", s)
				}
			})
		})
	}
}

func TestOneClientTriesTheEndpointsOfItsZoneAndThenTheOthers(t *testing.T) {
	r := placed(outOfZone, inZone, outOfZone, inZone)
	var got []int
	for _, e := range offeredTo(r, registry.TCP) {
		got = append(got, number(e))
	}
	slices.Sort(got[:2])
	slices.Sort(got[2:])
	if want := []int{2, 4, 1, 3}; !slices.Equal(got, want) {
		t.Errorf("a client was offered %v; want %v", got, want)
	}
}

func TestAClientIsGivenAnEndpointOfItsOwnFamilyFirst(t *testing.T) {
	six := registry.Addr{IP: netip.MustParseAddrPort("[fd00::6]:80")}
	name := registry.Addr{Host: "web", IP: netip.AddrPortFrom(netip.Addr{}, 80)}
	r := rotationOf(addr(1), six, name)
	first := func(client string) (got []registry.Addr) {
		for range 8 {
			c := r.ChooseFor(registry.TCP, netip.MustParseAddr(client), registry.NoTerms, nil)
			e, _ := c.Next()
			if !slices.Contains(got, e.Addr) {
				got = append(got, e.Addr)
			}
		}
		slices.SortFunc(got, registry.Addr.Compare)
		return got
	}
	both := func(a, b registry.Addr) []registry.Addr {
		all := []registry.Addr{a, b}
		slices.SortFunc(all, registry.Addr.Compare)
		return all
	}
	for client, want := range map[string][]registry.Addr{
		"10.9.9.9": both(addr(1), name), "::ffff:10.9.9.9": both(addr(1), name), "fd00::9": both(six, name),
	} {
		if got := first(client); !slices.Equal(got, want) {
			t.Errorf("%s is given %v; want %v", client, got, want)
		}
	}
	r.Endpoints()[1].Failed(registry.TCP)
	r.Endpoints()[2].Failed(registry.TCP)
	if got, want := first("fd00::9"), []registry.Addr{addr(1)}; !slices.Equal(got, want) {
		t.Errorf("without one of its family a client is given %v; want %v", got, want)
	}
}

func TestAServiceOfPolicyLocalGivesClientsEndpointsOnTheNodeOnly(t *testing.T) {
	r := placed(registry.OnNode, 0, registry.OnNode, registry.InZone)
	local := registry.Terms{Local: true}
	if got, want := given(t, r, 20, local), []int{1, 3}; !slices.Equal(got, want) {
		t.Errorf("clients are given %v; want %v", got, want)
	}
	r.Endpoints()[0].Failed(registry.TCP)
	r.Endpoints()[2].Failed(registry.TCP)
	if got, want := given(t, r, 20, local), []int{1, 3}; len(got) == 0 || slices.Contains(got, 2) || slices.Contains(got, 4) {
		t.Errorf("when those on the node fail, clients are given %v; want of %v", got, want)
	}
	r.SetTerms(&local, health.ClientsOf(registry.TCP, true))
	place(r, 0, 0, registry.InZone)
	if got := given(t, r, 20, local); got != nil {
		t.Errorf("without one on the node clients are given %v", got)
	}
	if why, away := r.TurnsAway(registry.TCP, &local); !away || why != traffic.NoLocalEndpoint || r.Status().Condition != health.NoLocal {
		t.Errorf("clients are turned away: %v, %v; the condition is %v", away, why, r.Status().Condition)
	}
	r.Endpoints()[0].Answered(registry.TCP)
	r.Endpoints()[2].Answered(registry.TCP)
	if got := given(t, r, 20, registry.Terms{}); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("clients of another policy are given %v", got)
	}
}

func TestAServicePrefersWhatItsDistributionSays(t *testing.T) {
	here := registry.OnNode | registry.InZone
	r := placed(registry.OutOfZone, registry.InZone, here)
	for _, c := range []struct {
		distribution registry.Distribution
		want         []int
	}{
		{registry.Anywhere, []int{1, 2, 3}}, {registry.PreferSameZone, []int{2, 3}}, {registry.PreferSameNode, []int{3}},
	} {
		r.SetTerms(&registry.Terms{Distribution: c.distribution}, health.ClientsOf(registry.TCP, false))
		if got := given(t, r, 20, registry.Terms{}); !slices.Equal(got, c.want) {
			t.Errorf("%q: clients are given %v; want %v", c.distribution, got, c.want)
		}
	}
	r.Endpoints()[2].Failed(registry.TCP)
	if got := given(t, r, 20, registry.Terms{}); !slices.Equal(got, []int{2}) {
		t.Errorf("when the one on the node has failed, clients are given %v; want that in the zone", got)
	}
}

func TestEndpointsMayChangeTheirZoneAndOrder(t *testing.T) {
	r := placed(inZone, outOfZone)
	if got := given(t, r, 4, registry.Terms{}); !slices.Equal(got, []int{1}) {
		t.Fatalf("clients are given %v", got)
	}
	kept := r.Endpoints()[1]
	kept.Failed(registry.TCP)
	place(r, outOfZone, inZone)
	if got := given(t, r, 4, registry.Terms{}); r.Endpoints()[1] != kept || !slices.Equal(got, []int{1}) {
		t.Errorf("clients are given %v; want 1, for 2 has failed", got)
	}
	kept.Answered(registry.TCP)
	if got := given(t, r, 4, registry.Terms{}); !slices.Equal(got, []int{2}) {
		t.Errorf("clients are given %v; want 2", got)
	}
	// The same places in the same order, and other addresses at them.
	list := registry.PortAddrs{Addrs: registry.NewAddrs(addr(2), addr(1)), Places: r.set.Load().places}
	r.Replace(list, "")
	if got := given(t, r, 4, registry.Terms{}); !slices.Equal(got, []int{1}) {
		t.Errorf("clients are given %v; want 1", got)
	}
}

func TestClientsAreCountedByTheZoneOfTheirEndpoint(t *testing.T) {
	r := placed(inZone, outOfZone, 0)
	for i, n := range []int{5, 3, 7} {
		for range n {
			give(r.Endpoints()[i])
		}
	}
	place(r, inZone, outOfZone, 0, 0)
	if got := r.Status().Zones; got != [2]uint64{5, 3} {
		t.Errorf("counted %v; want 5 in the zone and 3 in another", got)
	}
}

// TestEachClientIsOfferedTheNearestEndpointThatIsReady compares the first offer with what the places, the families and the health of all
// endpoints say, whatever has happened to them.
func TestEachClientIsOfferedTheNearestEndpointThatIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(5, 6))
		for range 200 {
			places := make([]registry.Place, 1+random.IntN(9))
			rules := NewRules(random.IntN(2) == 0)
			rules.Node = registry.Node{Name: "n", Zone: "z"}
			r := New(rules, registry.PortKey{Name: web})
			var all registry.AddrsBuilder
			for i := range places {
				places[i] = [...]registry.Place{inZone, outOfZone, inZone | registry.OnNode}[random.IntN(3)]
				a := addr(i + 1)
				if random.IntN(4) == 0 {
					a.IP = netip.MustParseAddrPort(fmt.Sprintf("[fd00::%d]:80", i+1))
				}
				all.Add(a)
			}
			i := -1
			list := registry.PortAddrs{Addrs: all.Addrs()}
			list.Places = registry.PlacesOf(list.Addrs, func(registry.Addr) registry.Place { i++; return places[i] })
			r.Replace(list, "")
			rank := func(e *Endpoint, client netip.Addr) (n int) {
				if familyOf(e.Addr) == 1 != client.Is6() {
					n += 2
				}
				if e.place()&registry.InZone == 0 {
					n++
				}
				return n
			}
			for range 40 {
				e := r.Endpoints()[random.IntN(len(places))]
				switch random.IntN(4) {
				case 0, 1:
					e.Failed(registry.TCP)
				case 2:
					e.Answered(registry.TCP)
				case 3:
					time.Sleep(time.Duration(random.IntN(int(3 * time.Second))))
				}
				client := netip.MustParseAddr([...]string{"10.9.9.9", "fd00::9"}[random.IntN(2)])
				best := 9
				for _, e := range r.Endpoints() {
					if due := e.returns(registry.TCP); due == 0 || due <= monotonic.Now() {
						best = min(best, rank(e, client))
					}
				}
				c := r.ChooseFor(registry.TCP, client, registry.NoTerms, nil)
				if e, ok := c.Next(); !ok || best < 9 && rank(e, client) != best {
					t.Fatalf("client %v was offered %v, of rank %d; want rank %d", client, e.Addr, rank(e, client), best)
				}
			}
		}
	})
}
