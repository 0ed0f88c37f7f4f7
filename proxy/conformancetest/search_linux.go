package conformancetest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// What a search for an endpoint may cost, and when it ends.

// unroutable makes n addresses that no route leads to in a test's own network.
func unroutable(n int) (all []registry.Addr) {
	for i := range n {
		all = append(all, registry.Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}), 80)})
	}
	return all
}

func (s suite) TestAClientOfEndpointsWithoutARouteCostsSixteenAttempts(t *testing.T) {
	cfg := s.config()
	if !proxytest.InOwnNetwork(t) { // which has no route to anywhere
		return
	}
	var log ended
	cfg.Ended = log.note
	n := newNode(t, cfg)
	addr := tcpThrough(t, n, unroutable(5000)...)
	udpAddr := udpThrough(t, n, unroutable(5000)...)
	for range 2 {
		if !proxytest.Refuses(addr) {
			t.Error("a client was not refused")
		}
		if _, err := proxytest.DialUDP(t, udpAddr).Write([]byte("question")); err != nil {
			t.Fatal(err)
		}
	}
	for _, protocol := range []registry.Protocol{registry.TCP, registry.UDP} {
		for _, e := range log.of(t, protocol, 2) {
			if e.Attempts != 16 || e.Reason != traffic.DialFailed {
				t.Errorf("a client over %s ended after %d attempts with %s, want 16 and dial_failed", protocol, e.Attempts, e.Reason)
			}
		}
	}
	failures := uint64(0)
	for _, s := range n.balancer.Status() {
		failures += s.Failures
	}
	if failures != 4*16 {
		t.Errorf("four clients cost %d attempts, want 64", failures)
	}
}

// TestTheSearchForAnEndpointEndsWithItsService: attempts that are under way may still succeed, but no other begins, and the
// client hears that the service is gone as soon as the last of them has failed.
func (s suite) TestTheSearchForAnEndpointEndsWithItsService(t *testing.T) {
	cfg := s.config()
	var log ended
	cfg.Ended = log.note
	cfg.DialTimeout = 400 * time.Millisecond
	cfg.DialTotalTimeout = time.Minute
	n := newNode(t, cfg)
	silent := make([]registry.Addr, 16)
	for i := range silent {
		silent[i] = proxytest.BlackHole(t)
	}
	addr := tcpThrough(t, n, silent...)
	client := proxytest.Dial(t, addr)
	proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Active == 1 }, "the client to be accepted")
	n.apply(noService("web"))
	if _, err := client.Read(make([]byte, 1)); !proxytest.IsReset(err) {
		t.Errorf("the client got %v, want a reset", err)
	}
	e := log.of(t, registry.TCP, 1)[0]
	if e.Reason != traffic.ServiceRemoved || e.Attempts > 3 {
		t.Errorf("it ended with %s after %d attempts, want service_removed after those that were under way", e.Reason, e.Attempts)
	}
}

// TestAClientWhoseEndpointIsSilentWhileItsPortChangesHandsIsServedByTheNewOwner: the search among the endpoints of the old owner ends with its
// claim, and the client is no worse off than one that comes after the swap.
func (s suite) TestAClientWhoseEndpointIsSilentWhileItsPortChangesHandsIsServedByTheNewOwner(t *testing.T) {
	cfg := s.config()
	if !proxytest.InOwnNetwork(t) { // where the table of sockets is short, so that a look at it takes less than the dial does
		return
	}
	cfg.DialTimeout = 2 * time.Second // the new owner's endpoints are dialled when this one has failed
	n := newNode(t, cfg)
	first, second := proxytest.FreePort(t), proxytest.FreePort(t)
	working := served(t, proxytest.Identify("a"))
	silent := proxytest.BlackHole(t)
	n.apply(service("a", tcp(first)), service("b", tcp(second)), endpoints("a", silent), endpoints("b", served(t, proxytest.Identify("b"))))
	client := proxytest.Dial(t, proxytest.On(first))
	proxytest.Eventually(t, func() bool { return isConnecting(t, silent.IP) }, "the search to begin")
	n.apply(service("a", tcp(second)), service("b", tcp(first)), endpoints("a", working))
	answer := make([]byte, 1)
	if _, err := client.Read(answer); err != nil || string(answer) != "b" {
		t.Errorf("the client got %q, %v; want the answer of b, which has the port", answer, err)
	}
	if a, b := totalsOf(n, "a").Active, totalsOf(n, "b").Active; a != 0 || b != 1 {
		t.Errorf("a counts %d clients and b %d, want the client to be b's", a, b)
	}
}

// TestAClientIsServedAlthoughTheFirstPacketToItsOnlyEndpointIsLost: the kernel sends the SYN again after a second, so an attempt has to last
// for longer. A full queue of the endpoint loses the first one. On a busy machine there may be room only after some more of them.
func (s suite) TestAClientIsServedAlthoughTheFirstPacketToItsOnlyEndpointIsLost(t *testing.T) {
	if d := engine.Defaults(); d.DialTimeout < 2*time.Second || d.DialTotalTimeout < d.DialTimeout {
		t.Errorf("by default an attempt may take %v, and all %v", d.DialTimeout, d.DialTotalTimeout)
	}
	cfg := s.config()
	cfg.DialTimeout, cfg.DialTotalTimeout = 2*proxytest.Patience, 2*proxytest.Patience
	n := newNode(t, cfg)
	endpoint, relieve := proxytest.FullQueue(t)
	addr := tcpThrough(t, n, endpoint)
	proxytest.Dial(t, addr)
	proxytest.Eventually(t, func() bool { return isConnecting(t, endpoint.IP) }, "the attempt to begin")
	relieve()
	proxytest.Eventually(t, func() bool {
		e := n.balancer.Status()[0]
		return e.Connections+e.Failures > 0
	}, "the attempt to end")
	if e, now := n.balancer.Status()[0], totalsOf(n, "web"); e.Connections != 1 || e.Failures != 0 || now.Active != 1 {
		t.Errorf("the client was not served: %+v, %d clients", e, now.Active)
	}
}

// TestADialThatTimedOutHoldsNoSocket: it ends then, and not only with its race.
func (s suite) TestADialThatTimedOutHoldsNoSocket(t *testing.T) {
	cfg := s.config()
	if !proxytest.InOwnNetwork(t) { // where the table of sockets is short, and nothing else keeps the test from a look at it
		return
	}
	cfg.DialTimeout, cfg.DialTotalTimeout = engine.Stagger-10*time.Millisecond, time.Minute
	n := newNode(t, cfg)
	all := make([]registry.Addr, 32) // one after another fails before the next would begin beside it, so the race lasts for some 4 s
	for i := range all {
		all[i] = proxytest.BlackHole(t)
	}
	proxytest.Dial(t, tcpThrough(t, n, all...))
	var first registry.Addr // which of them is dialled first is the balancer's choice
	proxytest.Eventually(t, func() bool {
		status := n.balancer.Status()
		at := slices.IndexFunc(status, func(e rotation.EndpointStatus) bool { return e.Failures > 0 })
		if at >= 0 {
			first = status[at].Addr
		}
		return at >= 0
	}, "the first dial to fail")
	proxytest.Eventually(t, func() bool { return !isConnecting(t, first.IP) }, "the first dial to end")
	if totalsOf(n, "web").Active != 1 {
		t.Error("the first dial ended with its race")
	}
}

// TestADialThatLostHoldsNoSocket: it ends when another endpoint accepts, and not after its time.
func (s suite) TestADialThatLostHoldsNoSocket(t *testing.T) {
	cfg := s.config()
	cfg.DialTimeout, cfg.DialTotalTimeout = 2*proxytest.Patience, 2*proxytest.Patience
	n := newNode(t, cfg)
	silent := proxytest.BlackHole(t)
	if got := proxytest.WhoAnswers(t, tcpThrough(t, n, silent, served(t, proxytest.Identify("alive")))); got != "alive" {
		t.Errorf("answered by %q", got)
	}
	proxytest.Eventually(t, func() bool { return !isConnecting(t, silent.IP) }, "the dial that lost to end")
}

// isConnecting reports whether this process, or another of this network, has sent a SYN to an address that was not answered yet.
func isConnecting(t *testing.T, to netip.AddrPort) bool {
	t.Helper()
	sockets, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	const synSent = "02"
	ip := to.Addr().As4()
	return strings.Contains(string(sockets), fmt.Sprintf(" %08X:%04X %s ", binary.NativeEndian.Uint32(ip[:]), to.Port(), synSent))
}
