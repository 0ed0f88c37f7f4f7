package udp

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A fixture is an engine's base, and a UDP service with endpoints.
type fixture struct {
	engine.Base
	lb    *balance.LoadBalancerRR
	owner *engine.Claim
	port  Port
}

var web = registry.Name{Namespace: registry.DefaultNamespace, Name: "web"}

// at is the address of the endpoint with a number.
func at(n byte) registry.Addr {
	return registry.Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 53)}
}

func newFixture(t testing.TB, cfg engine.Config, endpoints ...registry.Addr) *fixture {
	t.Helper()
	f := &fixture{lb: balance.NewLoadBalancerRR(false)}
	f.Init(cfg.WithDefaults(), admit.NewOwnPorts(netip.IPv4Unspecified()))
	t.Cleanup(f.Resolver.Close)
	f.set(endpoints...)
	key := registry.PortKey{Name: web}
	f.owner = &engine.Claim{Key: key, Rotation: f.lb.Hold(key), Tally: traffic.NewTally(key, registry.UDP), Lifetime: new(removal.Lifetime), Terms: new(registry.Terms)}
	owner := new(atomic.Pointer[engine.Claim])
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
