package conformancetest

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"kubeproxy/proxy"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// udpReasonCases are the reasons of UDP sessions. A newcomer who is refused a session has none that could
// end: its datagrams are dropped, each with a reason of its own.
var udpReasonCases = []reasonCase{
	{why: traffic.Idle, when: "nobody says anything", config: func(cfg *proxy.Config) {
		cfg.UDPTimeout = time.Second // longer than a machine with much to do may keep an answer back
	}, do: func(t *testing.T, b *bookish) {
		b.ask(t)
	}},
	{why: traffic.Answered, when: "its one reply was given", do: func(t *testing.T, b *bookish) {
		b.at = proxytest.On(proxytest.FreePort(t))
		b.apply(asking("web", registry.Terms{Limits: registry.Limits{Replies: 1}}, udp(b.at.Port())), endpoints("web", proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP).Addr))
		if _, err := proxytest.DialUDP(t, b.at).Exchange([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		b.sent, b.received = 5, 5
	}},
	{why: traffic.DialFailed, when: "over UDP, each endpoint refuses", do: func(t *testing.T, b *bookish) {
		b.lose(t, "unreachable", refusingUDP(t), refusingUDP(t))
		b.sent, b.attempts = 10, 2 // each was sent the datagram, and refused it
	}},
	{why: traffic.OwnListener, when: "over UDP, the only endpoint is a port of the proxy", do: func(t *testing.T, b *bookish) {
		port := proxytest.FreePort(t)
		b.apply(service("loop", udp(port)))
		b.lose(t, "own_listener", proxytest.At(proxytest.On(port)))
	}},
	{why: traffic.EndpointNotAllowed, when: "over UDP, the only endpoint lies elsewhere", config: func(cfg *proxy.Config) {
		cfg.AllowedEndpoints = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::/0")}
	}, do: func(t *testing.T, b *bookish) {
		b.lose(t, "endpoint_not_allowed", servedUDP(t, "web"))
	}},
	{why: traffic.Loop, when: "the only endpoint is the client itself", do: func(t *testing.T, b *bookish) {
		endpoint := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP)
		if err := endpoint.Send("hello", b.serveUDP(t, endpoint.Addr)); err != nil {
			t.Fatal(err)
		}
		b.drops(t, "loop")
	}},
	{why: traffic.SourceNotAllowed, when: "its address is not allowed any more", do: func(t *testing.T, b *bookish) {
		b.ask(t)
		b.apply(fromUDP("web", b.at.Port(), "127.0.0.2/32"))
	}},
	{why: traffic.Evicted, when: "another client needs the room", config: func(cfg *proxy.Config) {
		cfg.MaxUDPSessions = 1
	}, do: func(t *testing.T, b *bookish) {
		b.ask(t)
		proxytest.DialUDP(t, b.at).Write([]byte("hello"))
	}},
	{why: traffic.EndpointRemoved, when: "its only endpoint goes", do: func(t *testing.T, b *bookish) {
		client := b.ask(t)
		b.apply(endpoints("web"))
		client.Write([]byte("lost"))
	}},
	{why: traffic.ServiceRemoved, when: "over UDP, its service goes", do: func(t *testing.T, b *bookish) {
		b.ask(t)
		b.apply(noService("web"))
	}},
	{why: traffic.ServiceRemoved, when: "over UDP, its port is another's", do: func(t *testing.T, b *bookish) {
		b.ask(t)
		b.apply(serviceSince("heir", 2, udp(b.at.Port())), service("web", udp(proxytest.FreePort(t))))
	}},
	{why: traffic.Killed, when: "over UDP, an operator ends the session", do: func(t *testing.T, b *bookish) {
		b.ask(t)
		if n := b.kill(t, traffic.Selection{Service: named("web")}); n != 1 {
			t.Errorf("%d clients were ended; want 1", n)
		}
	}},
	{why: traffic.Shutdown, when: "over UDP, the proxy is stopped", do: func(t *testing.T, b *bookish) {
		b.ask(t)
		b.end()
	}},
}

// serveUDP gives the service "web" its endpoints, over UDP.
func (b *bookish) serveUDP(t *testing.T, addrs ...registry.Addr) netip.AddrPort {
	t.Helper()
	b.at = proxytest.On(proxytest.FreePort(t))
	b.apply(service("web", udp(b.at.Port())), endpoints("web", addrs...))
	return b.at
}

// ask has a client of the service "web" exchange a datagram with it.
func (b *bookish) ask(t *testing.T) *proxytest.UDPClient {
	t.Helper()
	client := proxytest.DialUDP(t, b.serveUDP(t, proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP).Addr))
	if _, err := client.Exchange([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	b.sent, b.received = 5, 5
	return client
}

// lose has a client of the service "web" send a datagram that no endpoint gets, and waits until it is
// counted as dropped for this reason: then nothing more may come of it.
func (b *bookish) lose(t *testing.T, why string, addrs ...registry.Addr) {
	t.Helper()
	proxytest.DialUDP(t, b.serveUDP(t, addrs...)).Write([]byte("hello"))
	b.drops(t, why)
}

// drops waits until one datagram is counted as dropped for this reason.
func (b *bookish) drops(t *testing.T, why string) {
	t.Helper()
	var dropped []string
	if !proxytest.Becomes(func() bool {
		dropped = nil
		for _, totals := range b.Totals() {
			for _, reason := range traffic.DropReasons() {
				for range totals.Dropped[reason] {
					dropped = append(dropped, reason.Code())
				}
			}
		}
		return slices.Equal(dropped, []string{why})
	}) {
		t.Errorf("dropped were %v; want %s", dropped, why)
	}
}

// refusingUDP is an endpoint that refuses datagrams.
func refusingUDP(t *testing.T) registry.Addr {
	t.Helper()
	s := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	s.Close()
	return s.Addr
}

// fromUDP says that a service has one UDP port, and who may send to it.
func fromUDP(name string, port uint16, ranges ...string) change {
	return func(b *registry.Batch) {
		service(name, udp(port))(b)
		var terms registry.Terms
		for _, r := range ranges {
			terms.SourceRanges = append(terms.SourceRanges, netip.MustParsePrefix(r))
		}
		b.Services[named(name)].SetTerms(terms)
	}
}
