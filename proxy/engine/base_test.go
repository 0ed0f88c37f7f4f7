package engine

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/time/rate"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A fixture is an engine's base, and a UDP service with endpoints.
type fixture struct {
	Base
	lb    *balance.LoadBalancerRR
	owner *Claim
}

var web = registry.Name{Namespace: registry.DefaultNamespace, Name: "web"}

// at is the address of the endpoint with a number.
func at(n byte) registry.Addr {
	return registry.Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 53)}
}

func newFixture(t testing.TB, cfg Config, endpoints ...registry.Addr) *fixture {
	t.Helper()
	f := &fixture{lb: balance.NewLoadBalancerRR(false)}
	f.Init(cfg.WithDefaults(), admit.NewOwnPorts(netip.IPv4Unspecified()))
	t.Cleanup(f.Resolver.Close)
	f.set(endpoints...)
	key := registry.PortKey{Name: web}
	f.owner = &Claim{Key: key, Rotation: f.lb.Hold(key), Tally: traffic.NewTally(key, registry.UDP), Lifetime: new(balance.Lifetime)}
	return f
}

func (f *fixture) set(endpoints ...registry.Addr) {
	record := &registry.Endpoints{Name: web, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(endpoints...)}}}
	if len(endpoints) == 0 {
		record = nil
	}
	f.lb.SetEndpoints(map[registry.Name]*registry.Endpoints{web: record})
	f.lb.LetGo()
}

// dropped returns how many datagrams were dropped, by reason.
func (f *fixture) dropped() map[traffic.DropReason]uint64 {
	counts := make(map[traffic.DropReason]uint64)
	for _, why := range traffic.DropReasons() {
		if n := f.owner.Tally.Dropped[why].Load(); n > 0 {
			counts[why] = n
		}
	}
	return counts
}

var aClient = admit.SessionKey{Client: netip.MustParseAddrPort("192.0.2.7:4444")}

// The reasons are asked for in this order: what is wrong is wrong alone, and then together with all that comes after it.
func TestANewcomerIsRefusedForTheFirstReasonThereIs(t *testing.T) {
	type state struct {
		f       *fixture
		crowded bool
		pace    *rate.Limiter
	}
	type wrong struct {
		name string
		why  traffic.DropReason
		do   func(*state)
	}
	troubles := []wrong{
		{"its address is not allowed", traffic.DropSource, func(s *state) { s.f.owner.Sources = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")} }},
		{"there are no endpoints", traffic.DropNoEndpoints, func(s *state) { s.f.set() }},
		{"the port's queue is half full", traffic.DropOverload, func(s *state) { s.crowded = true }},
		{"sessions end too slowly", traffic.DropOverload, func(s *state) { s.f.Sessions.Existing.Add(1 << 30) }},
		{"too many come to the port", traffic.DropOverload, func(s *state) { s.pace = rate.NewLimiter(0, 0) }},
		{"too many come to the node", traffic.DropOverload, func(s *state) { s.f.Newcomers = rate.NewLimiter(0, 0) }},
		{"it is a port of this proxy", traffic.DropLoop, func(s *state) {
			s.f.Resolver.Own.Add(registry.NodePort{Protocol: registry.UDP, Number: aClient.Client.Port()})
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
				s := &state{f: newFixture(t, Config{}, at(1)), pace: rate.NewLimiter(1, 1)}
				for _, w := range all {
					w.do(s)
				}
				used := s.f.Budget.Used.Load()
				begins := s.f.MayBegin(s.f.owner, key, func() bool { return s.crowded }, s.pace)
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
	f := newFixture(t, Config{})
	asked, pace := 0, rate.NewLimiter(0, 1)
	f.Newcomers = rate.NewLimiter(0, 1)
	isCrowded := func() bool { asked++; return true }
	f.MayBegin(f.owner, aClient, isCrowded, pace)
	if asked != 0 {
		t.Error("the kernel was asked about the queue for a client of a service without endpoints")
	}
	f.set(at(1))
	f.MayBegin(f.owner, aClient, isCrowded, pace)
	if asked != 1 || !pace.Allow() || !f.Newcomers.Allow() {
		t.Errorf("the queue was asked about %d times, want once; or a client that came while it was full used up a token", asked)
	}
}

// An aSocket is a socket that does nothing.
type aSocket struct{ Socket }

func TestAPortIsOpenedByItsProtocolIfThereIsADescriptor(t *testing.T) {
	f := newFixture(t, Config{BindAddress: netip.MustParseAddr("192.0.2.1")})
	owner := new(atomic.Pointer[Claim])
	var opened []string
	failing := errors.New("the port is taken")
	open := func(name string, err error) Open {
		return func(at netip.AddrPort, by *atomic.Pointer[Claim]) (Socket, error) {
			if by != owner {
				t.Error("the owner is another")
			}
			opened = append(opened, name+" "+at.String())
			return aSocket{}, err
		}
	}
	listen := func(id registry.NodePort, err error) error {
		_, err = f.ListenBy(id, owner, open("tcp", err), open("udp", err))
		return err
	}
	for _, c := range []struct {
		id        registry.NodePort
		err       error
		listeners int64
	}{
		{registry.NodePort{Protocol: registry.TCP, Number: 80}, nil, 1},
		{registry.NodePort{Protocol: registry.UDP, Number: 53}, nil, 2},
		{registry.NodePort{Protocol: registry.UDP, Number: 54}, failing, 2},
	} {
		if err := listen(c.id, c.err); err != c.err || f.Budget.Open.Load() != c.listeners {
			t.Errorf("%v: %v, and listeners have %d descriptors; want %v and %d", c.id, err, f.Budget.Open.Load(), c.err, c.listeners)
		}
	}
	if want := []string{"tcp 192.0.2.1:80", "udp 192.0.2.1:53", "udp 192.0.2.1:54"}; !slices.Equal(opened, want) {
		t.Errorf("opened %v; want %v", opened, want)
	}
	for f.Budget.Take(1) {
	}
	if err := listen(registry.NodePort{Protocol: registry.TCP, Number: 81}, nil); !errors.Is(err, admit.ErrNoDescriptors) || len(opened) != 3 {
		t.Errorf("without a descriptor: %v, %d were opened", err, len(opened))
	}
	if err := listen(registry.NodePort{Protocol: 7, Number: 81}, nil); err == nil || f.Budget.Open.Load() != 2 {
		t.Errorf("an unknown protocol: %v, and listeners have %d descriptors", err, f.Budget.Open.Load())
	}
}
