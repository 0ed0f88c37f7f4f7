//go:build linux

package proxy_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
)

// Datagrams that would go round for ever, because both ends answer whatever they are sent.

// A datagram whose sender is forged to be another of our listeners would be answered by one listener to the
// other for ever.
func TestAUDPClientThatIsOurOwnListenerIsRefused(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
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
				pretend(t, proxytest.On(from), proxytest.On(to))
				proxytest.Eventually(t, func() bool { return totalsOf(n, "one").Dropped[drop("loop")] == 1 }, "the datagram to be dropped")
				if got := one.Received() + other.Received(); got != 0 {
					t.Errorf("the endpoints were sent %d datagrams", got)
				}
				pretend(t, proxytest.On(proxytest.FreePort(t)), proxytest.On(to))
				proxytest.Eventually(t, func() bool { return one.Received() == 1 }, "a datagram of another client at the endpoint")
			})
		}
	})
}

// An endpoint that sends to its own service from its service socket, or whose address was forged, would be
// given what it sent, and each of its answers after that.
func TestAnEndpointIsNotGivenItsOwnDatagrams(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
		n := newNode(t, cfg)
		echo, mute := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP), proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
		at := udpThrough(t, n, echo.Addr)
		if err := echo.Send("round and round", at); err != nil {
			t.Fatal(err)
		}
		proxytest.Eventually(t, func() bool {
			got := totalsOf(n, "dns")
			return got.Ended[traffic.Loop] == 1 && got.Active == 0
		}, "the session to end as a loop")
		if got := totalsOf(n, "dns"); got.Dropped[drop("loop")] != 1 || got.DialFailures != 0 {
			t.Errorf("%d datagrams were dropped, %d endpoints failed; want 1 and 0", got.Dropped[drop("loop")], got.DialFailures)
		}
		n.apply(endpoints("dns", echo.Addr, mute.Addr))
		for range 2 {
			if err := echo.Send("to another", at); err != nil {
				t.Fatal(err)
			}
		}
		proxytest.Eventually(t, func() bool { return mute.Received() == 2 }, "the datagrams at the other endpoint")
		if got := echo.Received(); got != 0 {
			t.Errorf("the endpoint was given %d of its own datagrams", got)
		}
	})
}

// Two nodes have each other's listener for an endpoint: the node that a datagram comes back from is not sent it
// again. Where there is another endpoint, that has it.
func TestALoopOverTwoNodesEndsAtTheSecond(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
		first := newNode(t, cfg)
		defer first.end() // what the second leaves behind is counted when the first has gone
		cfg.BindAddress = netip.MustParseAddr("127.0.0.2")
		second := newNode(t, cfg)
		port := proxytest.FreePort(t)
		here, there := proxytest.On(port), netip.AddrPortFrom(cfg.BindAddress, port)
		first.apply(service("dns", udp(port)), endpoints("dns", proxytest.At(there)))
		second.apply(service("dns", udp(port)), endpoints("dns", proxytest.At(here)))
		proxytest.DialUDPFrom(t, netip.MustParseAddr("127.0.0.9"), here).Write([]byte("round and round"))
		proxytest.Eventually(t, func() bool { return totalsOf(second, "dns").Dropped[drop("loop")] == 1 }, "the datagram to be dropped")
		if got := totalsOf(first, "dns"); got.Active != 1 {
			t.Errorf("the first node has %d sessions; want that of the client", got.Active)
		}
		second.apply(endpoints("dns", proxytest.At(here), servedUDP(t, "well")))
		for range 4 {
			if got := proxytest.DialUDPFrom(t, netip.MustParseAddr("127.0.0.9"), here).AskOften(t).Name; got != "well" {
				t.Errorf("answered by %q", got)
			}
		}
	})
}

// A range that is routed to this machine ("AnyIP") is on no interface, and yet each of its addresses is ours.
func TestAnEndpointInARangeThatIsRoutedToThisMachineIsRefused(t *testing.T) {
	conform(t, func(t *testing.T, cfg proxy.Config) {
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
	})
}

// drop finds a reason by its code.
func drop(code string) traffic.DropReason {
	for _, reason := range traffic.DropReasons() {
		if reason.Code() == code {
			return reason
		}
	}
	panic("no such reason: " + code)
}

// pretend sends a datagram from an address that need not be the test's, which takes a network of its own.
func pretend(t *testing.T, from, to netip.AddrPort) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	payload := "forged"
	packet := make([]byte, 28, 28+len(payload)) // IPv4 and UDP headers; the kernel fills in lengths and the first checksum
	packet[0], packet[8], packet[9] = 0x45, 64, unix.IPPROTO_UDP
	copy(packet[12:], from.Addr().AsSlice())
	copy(packet[16:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(packet[20:], from.Port())
	binary.BigEndian.PutUint16(packet[22:], to.Port())
	binary.BigEndian.PutUint16(packet[24:], uint16(8+len(payload)))
	if err := unix.Sendto(fd, append(packet, payload...), 0, &unix.SockaddrInet4{Addr: to.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
}
