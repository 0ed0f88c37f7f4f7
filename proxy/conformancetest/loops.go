package conformancetest

import (
	"net/netip"
	"testing"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
)

// An endpoint that sends to its own service from its service socket, or whose address was forged, would be
// given what it sent, and each of its answers after that.
func (s suite) TestAnEndpointIsNotGivenItsOwnDatagrams(t *testing.T) {
	cfg := s.config()
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
}

// Two nodes have each other's listener for an endpoint: the node that a datagram comes back from is not sent it
// again. Where there is another endpoint, that has it.
func (s suite) TestALoopOverTwoNodesEndsAtTheSecond(t *testing.T) {
	proxytest.NeedsAddresses(t, "127.0.0.2", "127.0.0.9")
	cfg := s.config()
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
