package engine

import (
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

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
	port  UDPPort
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
	owner := new(atomic.Pointer[Claim])
	owner.Store(f.owner)
	f.port.Init(&f.Base, 53, owner)
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
