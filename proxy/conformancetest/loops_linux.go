package conformancetest

import (
	"fmt"
	"net/netip"
	"testing"

	"kubeproxy/proxy/proxytest"
)

// Datagrams that would go round for ever, because both ends answer whatever they are sent.

// A datagram whose sender is forged to be another of our listeners would be answered by one listener to the
// other for ever.
func (s suite) TestAUDPClientThatIsOurOwnListenerIsRefused(t *testing.T) {
	cfg := s.config()
	if !proxytest.InOwnNetwork(t) {
		return
	}
	for _, bind := range []string{"0.0.0.0", "127.0.0.1"} {
		t.Run("bound to "+bind, func(t *testing.T) {
			cfg.BindAddress = netip.MustParseAddr(bind)
			n := newNode(t, cfg)
			one, other := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP), proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP)
			to, from := proxytest.FreePort(t), proxytest.FreePort(t)
			n.apply(service("one", udp(to)), endpoints("one", one.Addr), service("other", udp(from)), endpoints("other", other.Addr))
			proxytest.Forge(t, proxytest.On(from), proxytest.On(to))
			proxytest.Eventually(t, func() bool { return totalsOf(n, "one").Dropped[drop("loop")] == 1 }, "the datagram to be dropped")
			if got := one.Received() + other.Received(); got != 0 {
				t.Errorf("the endpoints were sent %d datagrams", got)
			}
			proxytest.Forge(t, proxytest.On(proxytest.FreePort(t)), proxytest.On(to))
			proxytest.Eventually(t, func() bool { return one.Received() == 1 }, "a datagram of another client at the endpoint")
		})
	}
}

// A range that is routed to this machine ("AnyIP") is on no interface, and yet each of its addresses is ours.
func (s suite) TestAnEndpointInARangeThatIsRoutedToThisMachineIsRefused(t *testing.T) {
	cfg := s.config()
	if !proxytest.InOwnNetwork(t) {
		return
	}
	limitDescriptors(t, fewDescriptors)
	proxytest.MustRun(t, "ip", "route", "add", "local", "10.99.0.0/16", "dev", "lo")
	proxytest.MustRun(t, "ip", "-6", "route", "add", "local", "fd99::/64", "dev", "lo")
	cfg.BindAddress = netip.IPv4Unspecified()
	n := newNode(t, cfg)
	for i, addr := range []string{"10.99.1.2", "fd99::3"} {
		port, name := proxytest.FreePort(t), fmt.Sprint("loop-", i)
		n.apply(service(name, tcp(port), udp(port)), endpoints(name, proxytest.At(netip.AddrPortFrom(netip.MustParseAddr(addr), port))))
		before := proxytest.Sockets(t)
		if !proxytest.Refuses(proxytest.On(port)) {
			t.Errorf("%s: a client of the loop was not turned away", addr)
		}
		proxytest.DialUDP(t, proxytest.On(port)).Write([]byte("round and round"))
		proxytest.Eventually(t, func() bool { return totalsOf(n, name).Dropped[drop("own_listener")] == 1 }, "%s: the datagram to be dropped", addr)
		if got := proxytest.Sockets(t); got > before+2 {
			t.Errorf("%s: two clients of the loop opened %d sockets", addr, got-before)
		}
		var ended uint64 // the first is noticed when it has connected, which makes one more client
		for _, times := range totalsOf(n, name).Ended {
			ended += times
		}
		if ended > 4 {
			t.Errorf("%s: two clients have become %d", addr, ended)
		}
	}
}
