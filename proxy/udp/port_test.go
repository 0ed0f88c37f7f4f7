package udp

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/time/rate"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

var aClient = admit.SessionKey{Client: netip.MustParseAddrPort("192.0.2.7:4444")}

// The reasons are asked for in this order: what is wrong is wrong alone, and then together with all that comes after it.
func TestANewcomerIsRefusedForTheFirstReasonThereIs(t *testing.T) {
	type state struct {
		f       *fixture
		crowded bool
	}
	type wrong struct {
		name string
		why  traffic.DropReason
		do   func(*state)
	}
	troubles := []wrong{
		{"its address is not allowed", traffic.DropSource, func(s *state) { s.f.owner.SourceRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")} }},
		{"there are no endpoints", traffic.DropNoEndpoints, func(s *state) { s.f.set() }},
		{"the port's queue is half full", traffic.DropOverload, func(s *state) { s.crowded = true }},
		{"sessions end too slowly", traffic.DropOverload, func(s *state) { s.f.Sessions.Existing.Add(1 << 30) }},
		{"too many come to the port", traffic.DropOverload, func(s *state) { s.f.port.pace = rate.NewLimiter(0, 0) }},
		{"too many come to the node", traffic.DropOverload, func(s *state) { s.f.Newcomers = rate.NewLimiter(0, 0) }},
		{"it is a port of this proxy", traffic.DropLoop, func(s *state) {
			s.f.Resolver.Own.Add(registry.ListenerID{Protocol: registry.UDP, Number: aClient.Client.Port()})
		}},
		{"there is no descriptor", traffic.DropDescriptorLimit, func(s *state) {
			for s.f.Budget.Take(1) {
			}
		}},
	}
	key := aClient
	key.Client = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), key.Client.Port()) // so that it can be a port of this proxy
	for from := range len(troubles) + 1 {
		name, want := "nothing is wrong", map[traffic.DropReason]uint64{}
		if from < len(troubles) {
			name, want = troubles[from].name, map[traffic.DropReason]uint64{troubles[from].why: 1}
		}
		for _, all := range [][]wrong{troubles[from:min(from+1, len(troubles))], troubles[from:]} {
			t.Run(fmt.Sprint(name, " and ", max(0, len(all)-1), " more"), func(t *testing.T) {
				s := &state{f: newFixture(t, engine.Config{}, at(1))}
				for _, w := range all {
					w.do(s)
				}
				used := s.f.Budget.Used.Load()
				begins := s.f.port.MayBegin(s.f.owner, key, func() bool { return s.crowded })
				if begins != (from == len(troubles)) || !maps.Equal(s.f.dropped(), want) {
					t.Errorf("it may begin: %v, dropped %v; want %v", begins, s.f.dropped(), want)
				}
				if taken := s.f.Budget.Used.Load() - used; begins != (taken == 1) {
					t.Errorf("it may begin: %v, and %d descriptors were taken", begins, taken)
				}
			})
		}
	}
}

// Who is refused for what costs nothing does not use up what others need.
func TestANewcomerThatIsRefusedUsesUpNobodysTurn(t *testing.T) {
	f := newFixture(t, engine.Config{})
	asked := 0
	f.Newcomers, f.port.pace = rate.NewLimiter(0, 1), rate.NewLimiter(0, 1)
	isCrowded := func() bool { asked++; return true }
	f.port.MayBegin(f.owner, aClient, isCrowded)
	if asked != 0 {
		t.Error("the kernel was asked about the queue for a client of a service without endpoints")
	}
	f.set(at(1))
	f.port.MayBegin(f.owner, aClient, isCrowded)
	if asked != 1 || !f.port.pace.Allow() || !f.Newcomers.Allow() {
		t.Errorf("the queue was asked about %d times, want once; or a client that came while it was full used up a token", asked)
	}
}

// What the kernel says of lost datagrams is a count that wraps around.
func TestLostDatagramsAreCountedOnce(t *testing.T) {
	f := newFixture(t, engine.Config{}, at(1))
	for _, c := range []struct {
		said uint32
		want uint64 // in all
	}{{0, 0}, {3, 3}, {3, 3}, {5, 5}, {1<<32 - 1, 1<<32 - 1}, {4, 1<<32 + 4}} {
		if f.port.CountLost(c.said); f.dropped()[traffic.DropQueueFull] != c.want {
			t.Errorf("the kernel has said %d: %v; want %d in all", c.said, f.dropped(), c.want)
		}
	}
}

func TestADatagramThatWasCutIsDropped(t *testing.T) {
	f := newFixture(t, engine.Config{}, at(1))
	if !f.port.Received(aClient.Client, MaxDatagram-1) || f.port.Received(aClient.Client, MaxDatagram) {
		t.Error("a datagram is whole if and only if it is shorter than its buffer")
	}
	if want := (map[traffic.DropReason]uint64{traffic.DropTooLong: 1}); !maps.Equal(f.dropped(), want) {
		t.Errorf("dropped %v; want %v", f.dropped(), want)
	}
}

// evicted counts how often a session was told that it has to go.
type evicted int

func (n *evicted) Evict() { *n++ }

func TestASessionThatFindsNoRoomLeavesNothingBehind(t *testing.T) {
	f := newFixture(t, engine.Config{MaxUDPSessions: 2, MaxUDPSessionsPerService: 1}, at(1), at(2))
	begin := func(s *Session, client byte) (*admit.Entry, bool) {
		key := aClient
		key.Client = netip.AddrPortFrom(at(client).IP.Addr(), 9)
		if !f.port.MayBegin(f.owner, key, func() bool { return false }) {
			t.Fatal("the client is refused")
		}
		return f.port.Begin(s, new(evicted), f.owner, key)
	}
	var first, second, third Session
	if out, ok := begin(&first, 101); !ok || out != nil {
		t.Fatalf("the first client: let in %v, evicted %v", ok, out)
	}
	if out, ok := begin(&second, 102); !ok || out != &first.Entry || out.Session == nil {
		t.Fatalf("the second client: let in %v, evicted %v; want the first", ok, out)
	}
	first.End(traffic.Evicted)
	first.Finish()
	second.answered = true
	second.Forward(nil) // it is known now
	if _, ok := begin(&third, 103); ok {
		t.Fatal("a known client was pushed out")
	}
	if got := []int64{f.owner.Tally.Active.Load(), f.Sessions.Existing.Load(), f.Budget.Used.Load(), int64(f.Sessions.Counted())}; !slices.Equal(got, []int64{1, 1, 1, 1}) {
		t.Errorf("active, existing, descriptors, counted: %v; want one of each", got)
	}
	if want := (map[traffic.DropReason]uint64{traffic.DropServiceLimit: 1}); !maps.Equal(f.dropped(), want) {
		t.Errorf("dropped %v; want %v", f.dropped(), want)
	}
	if e, _ := second.Next(0); e.Addr != at(2) { // the third did not move the cursor
		t.Errorf("the second client is offered %v; want %v", e.Addr, at(2))
	}
	next := f.owner.Choose(aClient.Client.Addr())
	if e, _ := next.Next(); e.Addr != at(1) {
		t.Errorf("the next client is offered %v; want %v", e.Addr, at(1))
	}
}

func TestWhichSessionsGoOnWhenTheirPortChanges(t *testing.T) {
	for _, c := range []struct {
		name   string
		closed bool
		owner  func(f *fixture) *engine.Claim
		want   string
	}{
		{"nothing has changed", false, func(f *fixture) *engine.Claim { return f.owner }, ""},
		{"new terms still allow the client", false, func(f *fixture) *engine.Claim {
			return &engine.Claim{Rotation: f.owner.Rotation, Lifetime: f.owner.Lifetime, Terms: &registry.Terms{SourceRanges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}
		}, ""},
		{"new terms do not", false, func(f *fixture) *engine.Claim {
			return &engine.Claim{Rotation: f.owner.Rotation, Lifetime: f.owner.Lifetime, Terms: &registry.Terms{SourceRanges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}}
		}, "source_not_allowed"},
		{"the port is another's", false, func(f *fixture) *engine.Claim {
			return &engine.Claim{Rotation: new(rotation.Rotation), Lifetime: new(removal.Lifetime), Terms: registry.NoTerms}
		}, "service_removed"},
		{"the proxy stops", true, func(f *fixture) *engine.Claim { return f.owner }, "shutdown"},
		{"the service has left the port", true, func(f *fixture) *engine.Claim {
			f.owner.Lifetime.End(removal.Policy{}, traffic.ServiceRemoved, 0)
			return f.owner
		}, "service_removed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, engine.Config{}, at(1))
			s := f.begin(t)
			f.port.Owner.Store(c.owner(f))
			got := ""
			if why, ends := f.port.Ends(&s.Session, c.closed); ends {
				got = why.String()
			}
			if got != c.want {
				t.Errorf("it ends by %q; want %q", got, c.want)
			}
		})
	}
}
