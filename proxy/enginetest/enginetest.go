package enginetest

import (
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"sync/atomic"
	"testing"

	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// Tests of engines log to standard error: a log file that glog opens would look like a descriptor that was left open.
func init() { flag.Set("logtostderr", "true") }

// OwnerOf makes a claim the owner of a socket.
func OwnerOf(r *rotation.Rotation) *atomic.Pointer[engine.Claim] {
	owner := new(atomic.Pointer[engine.Claim])
	owner.Store(&engine.Claim{Key: r.Key, Rotation: r, Tally: new(traffic.Tally), Lifetime: new(removal.Lifetime), Terms: new(registry.Terms)})
	return owner
}

// Must fails the test when something that could not fail did.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TCPPort is a TCP port of a node.
func TCPPort(n uint16) registry.ListenerID {
	return registry.ListenerID{Protocol: registry.TCP, Number: n}
}

// UDPPort is a UDP port of a node.
func UDPPort(n uint16) registry.ListenerID {
	return registry.ListenerID{Protocol: registry.UDP, Number: n}
}

// A UDPRecord is what is known of one UDP port: the service that owns it, and its endpoints.
type UDPRecord struct {
	lb        *balance.LoadBalancerRR
	Ownership atomic.Pointer[engine.Claim]
	Addr      netip.AddrPort  // where its clients find it
	claims    []*engine.Claim // all there were
}

// Init begins with a service that has these endpoints.
func (r *UDPRecord) Init(endpoints ...registry.Addr) {
	r.lb = balance.NewLoadBalancerRR(false)
	r.Set(endpoints...)
	r.Ownership.Store(r.Claim("dns"))
}

// Claim makes the claim of a service whose endpoints set tells.
func (r *UDPRecord) Claim(name string) *engine.Claim {
	key := registry.PortKey{Name: registry.Name{Namespace: registry.DefaultNamespace, Name: name}}
	c := &engine.Claim{Key: key, Rotation: r.lb.Hold(key), Tally: traffic.NewTally(key, registry.UDP), Lifetime: new(removal.Lifetime), Terms: new(registry.Terms)}
	r.claims = append(r.claims, c)
	return c
}

// Set gives the service "dns" other endpoints; none takes them all away.
func (r *UDPRecord) Set(endpoints ...registry.Addr) { r.SetOf("dns", endpoints...) }

// SetOf does the same for any service.
func (r *UDPRecord) SetOf(name string, endpoints ...registry.Addr) {
	n := registry.Name{Namespace: registry.DefaultNamespace, Name: name}
	record := &registry.Endpoints{Name: n, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(endpoints...)}}}
	if len(endpoints) == 0 {
		record = nil
	}
	r.lb.SetEndpoints(map[registry.Name]*registry.Endpoints{n: record})
	r.lb.LetGo()
}

// SessionCount counts the sessions there are.
func (r *UDPRecord) SessionCount() (n int) {
	for _, c := range r.claims {
		n += int(c.Tally.Active.Load())
	}
	return n
}

// Dropped counts the datagrams that were dropped so far, for each reason there was.
func (r *UDPRecord) Dropped() map[traffic.DropReason]uint64 {
	counts := make(map[traffic.DropReason]uint64)
	for _, c := range r.claims {
		for _, why := range traffic.DropReasons() {
			if n := c.Tally.Dropped[why].Load(); n > 0 {
				counts[why] += n
			}
		}
	}
	return counts
}

// HasDropped waits until just these drops were counted.
func (r *UDPRecord) HasDropped(t *testing.T, want map[traffic.DropReason]uint64) {
	t.Helper()
	proxytest.Eventually(t, func() bool { return maps.Equal(r.Dropped(), want) },
		"drops %v; there are %v", want, stringer(func() string { return fmt.Sprint(r.Dropped()) }))
}

type stringer func() string

// String calls s.
func (s stringer) String() string { return s() }

// Identity is a UDP endpoint that answers every datagram with its name.
func Identity(t testing.TB, name string) registry.Addr {
	t.Helper()
	return proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP(name)).Addr
}

// DeadUDP is an address of this machine that refuses datagrams.
func DeadUDP(t testing.TB) registry.Addr {
	t.Helper()
	s := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	s.Close()
	return s.Addr
}

// NewRotation makes the rotation of a service that has these endpoints.
func NewRotation(endpoints ...registry.Addr) *rotation.Rotation {
	lb := balance.NewLoadBalancerRR(false)
	name := registry.Name{Namespace: registry.DefaultNamespace, Name: "web"}
	r := lb.Hold(registry.PortKey{Name: name})
	lb.SetEndpoints(map[registry.Name]*registry.Endpoints{
		name: {Name: name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(endpoints...)}}},
	})
	return r
}

// Address is the address of the endpoint with a number: see NumberOf.
func Address(n int) registry.Addr {
	return registry.Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 80)}
}

// Addresses are those of several endpoints.
func Addresses(ns ...int) []registry.Addr {
	list := make([]registry.Addr, len(ns))
	for i, n := range ns {
		list[i] = Address(n)
	}
	return list
}

// NumberOf is the reverse of address.
func NumberOf(e *rotation.Endpoint) int {
	ip := e.Addr.IP.Addr().As4()
	return int(ip[2])<<8 | int(ip[3])
}

// Named is an endpoint that is a host name.
func Named(host string, port uint16) registry.Addr {
	return registry.Addr{IP: netip.AddrPortFrom(netip.Addr{}, port), Host: host}
}
