package rotation

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/affinity"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/removal"
	"kubeproxy/registry"
)

const affinityTimeout = 3 * time.Hour

// A stickyPort is one port of a service that wants affinity, without any sockets.
type stickyPort struct {
	*served
	t *testing.T
}

// A served is a service on a port, as far as the choice of an endpoint is concerned.
type served struct {
	rotation *Rotation
	protocol registry.Protocol
	affinity time.Duration
	lifetime *removal.Lifetime
}

func (s *served) choose(client netip.Addr) Choice {
	return s.rotation.ChooseFor(s.protocol, client, &registry.Terms{AffinityTimeout: s.affinity}, s.lifetime)
}

func newStickyPort(t *testing.T, ns ...int) *stickyPort {
	return &stickyPort{t: t, served: &served{rotation: numbered(ns...), affinity: affinityTimeout}}
}

// person is a client that differs from the others by n.
func person(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}) }

// connects has a client connect, and tells to which endpoint. Those in bad refuse.
func (s *stickyPort) connects(client netip.Addr, bad ...int) int {
	s.t.Helper()
	c := s.choose(client)
	for {
		e, ok := c.Next()
		if !ok {
			return 0
		}
		if !slices.Contains(bad, number(e)) {
			e.Answered(registry.TCP)
			c.Reached(e)
			return number(e)
		}
		c.Failed(e)
	}
}

func (s *stickyPort) given(client netip.Addr, want int) {
	s.t.Helper()
	if got := s.connects(client); got != want {
		s.t.Errorf("%v was given endpoint %d; want %d", client, got, want)
	}
}

// What users of other proxies have suffered.
func TestAffinityKeepsItsPromises(t *testing.T) {
	a, b := person(1), person(2)
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *stickyPort) // endpoints 1, 2 and 3; a has been given 1 just now
	}{
		{"a client is given the same endpoint again, and others go on in turn", func(t *testing.T, s *stickyPort) {
			s.given(b, 2)
			for range 3 {
				s.given(a, 1)
				s.given(b, 2)
			}
			s.given(person(3), 3)
			s.given(person(4), 1)
		}},
		{"an endpoint that refuses is left for good, for one that is kept", func(t *testing.T, s *stickyPort) { // kubernetes#24648
			next := s.connects(a, 1)
			if next == 1 || next == 0 {
				t.Fatalf("given %d", next)
			}
			time.Sleep(time.Minute) // 1 would be offered again
			for range 3 {
				s.given(a, next)
			}
		}},
		{"an endpoint that refused others is not waited for", func(t *testing.T, s *stickyPort) { // kubernetes#24648
			s.rotation.awake().endpoints[0].Failed(registry.TCP)
			next := s.connects(a)
			if next == 1 {
				t.Fatal("given an endpoint that is down")
			}
			time.Sleep(time.Minute)
			s.given(a, next)
		}},
		{"after its endpoints have all gone and come back a service still has affinity", func(t *testing.T, s *stickyPort) { // kubernetes#25314
			setEndpoints(s.rotation)
			s.given(a, 0)
			setEndpoints(s.rotation, 1, 2, 3)
			s.connects(b)
			next := s.connects(a)
			for range 3 {
				s.given(a, next)
			}
		}},
		{"the timeout ends it", func(t *testing.T, s *stickyPort) { // kubernetes#89358
			s.given(b, 2)
			time.Sleep(affinityTimeout)
			s.given(a, 3)
		}},
		{"a new connection makes it last, and nothing else does", func(t *testing.T, s *stickyPort) { // kubernetes#107398
			for range 5 {
				time.Sleep(affinityTimeout - time.Second)
				s.given(a, 1)
			}
			attempt := s.choose(a) // which is never decided
			attempt.Next()
			time.Sleep(affinityTimeout)
			s.given(a, 2)
		}},
		{"attempts that fail do not make it last", func(t *testing.T, s *stickyPort) { // kubernetes#110302
			for range 100 {
				s.connects(a, 1, 2, 3)
				time.Sleep(time.Second)
			}
			if n := rememberedBy(s.rotation, registry.TCP); n != 0 {
				t.Errorf("after attempts that all failed %d endpoints are remembered", n)
			}
		}},
		{"an endpoint that leaves is forgotten at once", func(t *testing.T, s *stickyPort) { // kubernetes#114018
			setEndpoints(s.rotation, 2, 3)
			s.given(a, 2)
			setEndpoints(s.rotation, 1, 2, 3)
			s.given(a, 2)
		}},
		{"changes of other endpoints and of their order do not matter", func(t *testing.T, s *stickyPort) {
			for _, ns := range [][]int{{3, 2, 1}, {2, 1}, {4, 5, 1}, {1}, {9, 8, 7, 1}} {
				setEndpoints(s.rotation, ns...)
				s.given(a, 1)
			}
		}},
		{"a client is its address, whatever its family and zone look like", func(t *testing.T, s *stickyPort) {
			s.given(netip.AddrFrom16(a.As16()), 1)
			link := netip.MustParseAddr("fe80::1%eth0")
			s.given(link, 2)
			s.given(link.WithZone("eth1"), 2)
		}},
		{"connections that begin together go together", func(t *testing.T, s *stickyPort) {
			one, other := s.choose(b), s.choose(b)
			first, _ := one.Next()
			second, _ := other.Next()
			if first != second {
				t.Errorf("given %d and %d", number(first), number(second))
			}
			one.Failed(first)
			one.Next()
			one.Reached(one.offered.last)
			time.Sleep(affinityTimeout - time.Second)
			other.Reached(second) // it was luckier, but the client has moved on
			s.given(b, number(one.offered.last))
			other.Reached(second)
			time.Sleep(affinityTimeout - time.Second)
			other.Reached(second) // and makes nothing last
			time.Sleep(time.Second)
			if next := s.connects(b); next == number(one.offered.last) {
				t.Errorf("given %d after its timeout", next)
			}
		}},
		{"who asks again is given another, whatever was wrong with the one before", func(t *testing.T, s *stickyPort) {
			c := s.choose(a)
			c.Next()
			e, _ := c.Next()
			if number(e) == 1 {
				t.Fatal("given the same again")
			}
			s.given(a, number(e))
		}},
		{"each protocol has its own", func(t *testing.T, s *stickyPort) {
			udp := *s.served
			udp.protocol = registry.UDP
			c := udp.choose(a)
			if e, _ := c.Next(); number(e) != 2 {
				t.Errorf("over the other protocol given %d; want 2", number(e))
			}
			if n := [2]int{rememberedBy(s.rotation, registry.Protocol(0)), rememberedBy(s.rotation, registry.Protocol(1))}; n != [2]int{1, 1} {
				t.Errorf("remembered by protocol: %d; want 1 each", n)
			}
		}},
		{"a shorter timeout counts for those who are remembered", func(t *testing.T, s *stickyPort) {
			time.Sleep(2 * time.Minute)
			s.affinity = time.Minute
			s.given(a, 2)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStickyPort(t, 1, 2, 3)
				s.given(a, 1)
				c.run(t, s)
			})
		})
	}
}

func TestARotationThatIsForgottenForgetsItsClients(t *testing.T) {
	s := newStickyPort(t, 1, 2, 3)
	for n := range 100 {
		s.connects(person(n))
	}
	setEndpoints(s.rotation)
	s.rotation.Forget()
	if got := rememberedBy(s.rotation, registry.TCP); got != 0 {
		t.Errorf("%d clients are remembered", got)
	}
}

// Whatever happens, each client is given an endpoint or told that there is none, and what is remembered is bounded.
func TestAffinityUnderChangeOfEverything(t *testing.T) {
	s := newStickyPort(t, 1, 2, 3)
	s.rotation.rules.affinities = affinity.NewTable[*Endpoint](30, 20)
	var working sync.WaitGroup
	for seed := range uint64(4) {
		working.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for range 5000 {
				c := s.choose(person(random.IntN(40)))
				for e, ok := c.Next(); ok; e, ok = c.Next() {
					if random.IntN(10) > 0 {
						e.Answered(registry.TCP)
						c.Reached(e)
						break
					}
					c.Failed(e)
				}
			}
		})
	}
	for i := range 500 {
		setEndpoints(s.rotation, [][]int{{1, 2, 3}, {2, 3}, {3, 1}, {}}[i%4]...)
	}
	working.Wait()
	if n := rememberedBy(s.rotation, registry.TCP); n > 20 {
		t.Errorf("%d clients are remembered; want 20 at most", n)
	}
}

// A closed UDP port says nothing of the TCP port of the same number.
func TestHealthOverOneProtocolSaysNothingOfTheOther(t *testing.T) {
	r := numbered(1, 2)
	r.awake().endpoints[0].Failed(registry.UDP)
	given := make(map[string]bool)
	for _, protocol := range []registry.Protocol{registry.TCP, registry.UDP} {
		for range 4 {
			c := r.ChooseFor(protocol, netip.Addr{}, registry.NoTerms, nil)
			e, _ := c.Next()
			given[fmt.Sprint(protocol, " ", number(e))] = true
		}
	}
	if !given["tcp 1"] || !given["tcp 2"] || given["udp 1"] || !given["udp 2"] {
		t.Errorf("given were %v; want both over TCP and only 2 over UDP", given)
	}
	r.awake().endpoints[0].Answered(registry.TCP)
	if !r.awake().endpoints[0].isEjected(registry.UDP) {
		t.Error("an answer over TCP made it well over UDP")
	}
}

func BenchmarkChooseWithAffinity(b *testing.B) {
	for _, clients := range []int{1, 10_000, 1 << 17} {
		b.Run(fmt.Sprint("clients=", clients), func(b *testing.B) {
			c := &served{rotation: numbered(1, 2, 3), affinity: affinityTimeout}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				n := i % clients
				choice := c.choose(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}))
				e, _ := choice.Next()
				choice.Reached(e)
			}
		})
	}
}

// rememberedBy counts the clients that a rotation remembers.
func rememberedBy(r *Rotation, protocol registry.Protocol) (n int) {
	for range r.rules.affinities.All(&r.clients[protocol]) {
		n++
	}
	return n
}

func TestAClientKeepsTheEndpointThatItReachedThoughThatAnsweredLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyPort(t, 1, 2, 3)
		first := s.connects(person(1))
		c := s.choose(person(1))
		late, _ := c.Next()
		c.Next() // it is silent, so another is tried
		c.Reached(late)
		s.given(person(1), first)
		c = s.choose(person(1))
		late, _ = c.Next()
		spare, _ := c.Next()
		c.leave(spare) // it was outrun
		c.Reached(late)
		s.given(person(1), first)
	})
}

func TestWhoHasAnEndpointKeepsItWhileItWarmsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(-monotonic.Now() + time.Second)
		s := newStickyPort(t, 1, 2)
		s.rotation.rules.Checker = checks.New(checks.Settings{SlowStart: time.Minute}, nil, nil)
		e := s.rotation.Endpoints()[0]
		e.Checked(registry.TCP, false)
		e.Checked(registry.TCP, true)
		time.Sleep(20 * time.Second)
		warm := 0
		for i := range 1000 {
			if s.connects(person(i)) == 1 {
				warm++
				s.given(person(i), 1)
			}
		}
		if warm == 0 {
			t.Error("no client was given the endpoint that warms up")
		}
	})
}

// sticks has a client with affinity come over TCP, and tells which endpoint it begins at.
func sticks(r *Rotation, client netip.Addr) int {
	c := r.ChooseFor(registry.TCP, client, &registry.Terms{AffinityTimeout: affinityTimeout}, nil)
	e, ok := c.Next()
	if !ok {
		return 0
	}
	e.Answered(registry.TCP)
	c.Reached(e)
	return number(e)
}

func TestAffinityHoldsNoClientOnAFarEndpointWhileANearOneIsReady(t *testing.T) {
	for name, places := range map[string][]registry.Place{
		"farther": {inZone, outOfZone, outOfZone, outOfZone}, "backups": {0, registry.Backup, registry.Backup, registry.Backup},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(-monotonic.Now() + time.Second)
				r := placed(places...)
				near := r.Endpoints()[0]
				near.Failed(registry.TCP)
				far := sticks(r, person(1))
				for range 3 {
					if got := sticks(r, person(1)); far == 1 || got != far {
						t.Fatalf("the client had %d, and is given %d while the near one is ejected", far, got)
					}
				}
				time.Sleep(health.FirstEjection)
				if e := offered(r); e != near {
					t.Fatalf("the near one is due back, and a client is offered %v", e)
				}
				if got := sticks(r, person(1)); got != far {
					t.Errorf("while another client finds out whether the near one is back, the client leaves %d for %d", far, got)
				}
				near.Answered(registry.TCP)
				if got := sticks(r, person(1)); got != 1 {
					t.Errorf("the near one is back, and the client is given %d", got)
				}
			})
		})
	}
}

func TestAffinityHoldsNoClientOnAnEndpointOfTheOtherFamily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // or the ejection would end
		six := registry.Addr{IP: netip.MustParseAddrPort("[fd00::6]:80")}
		r, client := rotationOf(addr(4), six), netip.MustParseAddr("fd00::9")
		r.Endpoints()[1].Failed(registry.TCP)
		given := func() registry.Addr {
			c := r.ChooseFor(registry.TCP, client, &registry.Terms{AffinityTimeout: affinityTimeout}, nil)
			e, _ := c.Next()
			c.Reached(e)
			return e.Addr
		}
		if got := given(); got != addr(4) {
			t.Fatalf("that of its family is ejected, and a client is given %v", got)
		}
		r.Endpoints()[1].Answered(registry.TCP)
		if got := given(); got != six {
			t.Errorf("that of its family is back, and the client is given %v", got)
		}
	})
}
