//go:build linux

package proxy

import (
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A udpEngine is either engine, with its name look-ups, limits and budget in reach.
type udpEngine struct {
	engine
	*chassis
}

// onBothEngines runs a test of UDP sessions once for each engine.
func onBothEngines(t *testing.T, cfg Config, test func(t *testing.T, e *udpEngine)) {
	t.Helper()
	for _, kind := range []Kind{Portable, Epoll} {
		t.Run(kind.String(), func(t *testing.T) {
			test(t, newUDPEngineOf(t, kind, cfg))
		})
	}
}

// newUDPEngineOf returns an engine that ends with the test, and leaves nothing behind.
func newUDPEngineOf(t testing.TB, kind Kind, cfg Config) *udpEngine {
	t.Helper()
	proxytest.NothingLeaks(t)
	if !cfg.BindAddress.IsValid() {
		cfg.BindAddress = proxytest.Loopback
	}
	cfg = cfg.withDefaults()
	own := newOwnPorts(cfg.BindAddress)
	e := new(udpEngine)
	if kind == Epoll {
		l := newEpoll(cfg, own)
		e.engine, e.chassis = l, &l.chassis
	} else {
		p := newPortable(cfg, own)
		e.engine, e.chassis = p, &p.chassis
	}
	t.Cleanup(func() {
		e.cut()
		e.engine.drain(t.Context())
		for _, l := range e.engine.limits() {
			if l.Used != 0 {
				t.Errorf("%d %s are still counted", l.Used, l.Name)
			}
		}
		if got := e.sessions.waitingBytes.Load(); got != 0 {
			t.Errorf("%d bytes are taken for waiting", got)
		}
	})
	return e
}

// A servedPort is one open UDP port of either engine, and the service that owns it.
type servedPort struct {
	socket
	udpRecord
	close func() // safe twice
}

// serve opens a port of e for a service with these endpoints.
func (e *udpEngine) serve(t testing.TB, endpoints ...registry.Addr) *servedPort {
	t.Helper()
	s := new(servedPort)
	s.init(endpoints...)
	port := proxytest.FreePort(t)
	opened, err := e.listen(udpPort(port), &s.ownership)
	if err != nil {
		t.Fatal(err)
	}
	s.socket, s.close = opened, sync.OnceFunc(opened.close)
	t.Cleanup(s.close)
	e.resolver.own.add(udpPort(port))
	s.addr = netip.AddrPortFrom(e.cfg.BindAddress, port)
	return s
}

// A udpRecord is what is known of one UDP port: the service that owns it, and its endpoints.
type udpRecord struct {
	lb        *LoadBalancerRR
	ownership atomic.Pointer[claim]
	addr      netip.AddrPort // where its clients find it
	claims    []*claim       // all there were
}

// init begins with a service that has these endpoints.
func (r *udpRecord) init(endpoints ...registry.Addr) {
	r.lb = NewLoadBalancerRR(false)
	r.set(endpoints...)
	r.ownership.Store(r.claim("dns"))
}

// claim makes the claim of a service whose endpoints set tells.
func (r *udpRecord) claim(name string) *claim {
	key := registry.PortKey{Name: registry.Name{Namespace: registry.DefaultNamespace, Name: name}}
	c := &claim{key: key, rotation: r.lb.hold(key), tally: newTally(key, registry.UDP), tenure: new(tenure)}
	r.claims = append(r.claims, c)
	return c
}

func (r *udpRecord) set(endpoints ...registry.Addr) { r.setOf("dns", endpoints...) }

func (r *udpRecord) setOf(name string, endpoints ...registry.Addr) {
	n := registry.Name{Namespace: registry.DefaultNamespace, Name: name}
	record := &registry.Endpoints{Name: n, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(endpoints...)}}}
	if len(endpoints) == 0 {
		record = nil
	}
	r.lb.setEndpoints(map[registry.Name]*registry.Endpoints{n: record})
	r.lb.letGo()
}

// sessionCount counts the sessions there are.
func (r *udpRecord) sessionCount() (n int) {
	for _, c := range r.claims {
		n += int(c.tally.active.Load())
	}
	return n
}

// dropped counts the datagrams that were dropped so far, for each reason there was.
func (r *udpRecord) dropped() map[DropReason]uint64 {
	counts := make(map[DropReason]uint64)
	for _, c := range r.claims {
		for why := range dropReasons {
			if n := c.tally.dropped[why].Load(); n > 0 {
				counts[why] += n
			}
		}
	}
	return counts
}

// hasDropped waits until just these drops were counted.
func (r *udpRecord) hasDropped(t *testing.T, want map[DropReason]uint64) {
	t.Helper()
	proxytest.Eventually(t, func() bool { return maps.Equal(r.dropped(), want) },
		"drops %v; there are %v", want, stringer(func() string { return fmt.Sprint(r.dropped()) }))
}

type stringer func() string

func (s stringer) String() string { return s() }

func identity(t testing.TB, name string) registry.Addr {
	t.Helper()
	return proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP(name)).Addr
}

// deadUDP is an address of this machine that refuses datagrams.
func deadUDP(t testing.TB) registry.Addr {
	t.Helper()
	s := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	s.Close()
	return s.Addr
}
