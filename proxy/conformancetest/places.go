package conformancetest

import (
	"net/netip"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A record limits how many clients an endpoint has at a time.

// places are the terms of a service each of whose endpoints may have so many clients.
func places(each int) registry.Terms {
	return registry.Terms{Limits: registry.Limits{PerEndpoint: each}}
}

func (s suite) TestARecordLimitsTheConnectionsOfEachEndpoint(t *testing.T) {
	n := newNode(t, s.config())
	at := proxytest.On(proxytest.FreePort(t))
	n.apply(asking("web", places(2), tcp(at.Port())), endpoints("web", served(t, proxytest.Chat("a")), served(t, proxytest.Chat("b"))))
	talks := fits(t, at)
	has := make(map[string]int)
	for _, talk := range talks {
		has[talk.MustSay(t, "hello")]++
	}
	if len(talks) != 4 || has["a"] != 2 || has["b"] != 2 {
		t.Fatalf("two endpoints with two places each have %v", has)
	}
	left := talks[0].MustSay(t, "goodbye")
	talks[0].Conn.Close()
	n.waitFor("web", 3) // who comes before that waits for a moment only
	next := fits(t, at)
	if len(next) != 1 || next[0].MustSay(t, "hello") != left {
		t.Errorf("a client of %s has gone, and %d are let in", left, len(next))
	}
	proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Ended[traffic.EndpointLimit] == 2 }, "two clients to be refused for the limit of an endpoint")
	n.apply(asking("web", places(3), tcp(at.Port())))
	if more := fits(t, at); len(more) != 2 {
		t.Errorf("%d more are let in when each endpoint may have three", len(more))
	}
	n.apply(asking("web", places(1), tcp(at.Port())))
	refuses(t, at)
	for _, talk := range append(talks[1:], next...) {
		talk.MustSay(t, "still here")
	}
}

// TestWhoConnectsAgainFindsThePlaceThatItHadFree: the client comes before the end of its last connection was seen, and does not exceed the limit.
func (s suite) TestWhoConnectsAgainFindsThePlaceThatItHadFree(t *testing.T) {
	cfg := s.config()
	cfg.WaitAtLimit = proxytest.Patience // else who is slow is refused
	n := newNode(t, cfg)
	at := proxytest.On(proxytest.FreePort(t))
	n.apply(asking("web", places(1), tcp(at.Port())), endpoints("web", served(t, proxytest.Chat("web"))))
	for range 200 {
		talk := proxytest.TalkTo(t, at)
		talk.MustSay(t, "hello")
		talk.Conn.Close()
	}
}

func (s suite) TestClientsWaitForAPlaceAtAnEndpoint(t *testing.T) {
	n := newNode(t, s.config())
	at, dns := proxytest.On(proxytest.FreePort(t)), proxytest.On(proxytest.FreePort(t))
	terms := waiting(20 * time.Second)
	terms.Limits.PerEndpoint, terms.Timeouts.UDP = 1, 500*time.Millisecond
	mute := func(payload []byte, _ netip.AddrPort) []byte {
		if string(payload) == "silence" {
			return nil
		}
		return payload
	}
	n.apply(asking("web", terms, tcp(at.Port())), endpoints("web", served(t, proxytest.Chat("web"))),
		asking("dns", terms, udp(dns.Port())), endpoints("dns", proxytest.ServeUDP(t, "127.0.0.1:0", mute).Addr))
	first := proxytest.TalkTo(t, at)
	first.MustSay(t, "hello")
	answered := make(chan error, 3)
	for range cap(answered) {
		talk := proxytest.TalkTo(t, at)
		go func() {
			_, err := talk.Say("hello")
			talk.Conn.Close()
			answered <- err
		}()
	}
	n.waitFor("web", 4)
	first.Conn.Close()
	for range cap(answered) {
		if err := proxytest.Receive(t, answered, "the answer to a client that has waited"); err != nil {
			t.Error(err)
		}
	}

	has, waits := proxytest.DialUDP(t, dns), proxytest.DialUDP(t, dns)
	has.Write([]byte("silence")) // for half a second, and then the session ends
	n.waitFor("dns", 1)
	waits.Write([]byte("hello"))
	n.waitFor("dns", 2)
	waits.SetReadDeadline(time.Now().Add(proxytest.Patience))
	buf := make([]byte, 100)
	if k, err := waits.Read(buf); string(buf[:k]) != "hello" {
		t.Errorf("a datagram that has waited was answered by %q, %v", buf[:k], err)
	}
}

func (s suite) TestARecordLimitsTheSessionsOfEachEndpoint(t *testing.T) {
	n := newNode(t, s.config())
	at := proxytest.On(proxytest.FreePort(t))
	n.apply(asking("dns", places(1), udp(at.Port())), endpoints("dns", servedUDP(t, "a"), servedUDP(t, "b")))
	first, second := proxytest.DialUDP(t, at), proxytest.DialUDP(t, at)
	if a, b := first.AskOften(t), second.AskOften(t); a == b {
		t.Errorf("two clients have one endpoint of two: %v", a)
	}
	if !proxytest.DialUDP(t, at).Drops() {
		t.Error("a third session was let in")
	}
	if got := totalsOf(n, "dns"); got.Dropped[traffic.DropEndpointLimit] == 0 || got.Active != 2 {
		t.Errorf("there are %d sessions; dropped %v", got.Active, got.Dropped)
	}
	first.AskOften(t) // the sessions of both go on
	second.AskOften(t)
}
