package conformancetest

import (
	"testing"

	"kubeproxy/proxy/proxytest"
)

// TestASuccessorKnowsHowManyClientsAnEndpointHas, so that one which is full gets none more, and the place of one that ends is free.
func TestASuccessorKnowsHowManyClientsAnEndpointHas(t *testing.T) {
	nodes := newNodes(t, liveConfig(), 2)
	web, dns := proxytest.On(proxytest.FreePort(t)), proxytest.On(proxytest.FreePort(t))
	records := []change{
		asking("web", places(1), tcp(web.Port())), endpoints("web", served(t, proxytest.Chat("a")), served(t, proxytest.Chat("b"))),
		asking("dns", places(1), udp(dns.Port())), endpoints("dns", servedUDP(t, "dns")),
	}
	nodes[0].apply(records...)
	talks := fits(t, web)
	if len(talks) != 2 {
		t.Fatalf("%d clients have two places", len(talks))
	}
	session := proxytest.DialUDP(t, dns)
	session.AskOften(t)
	nodes[0].passTo(nodes[1], records...)
	refuses(t, web)
	if !proxytest.DialUDP(t, dns).Drops() {
		t.Error("a second session was let in by the successor")
	}
	session.AskOften(t)
	left := talks[0].MustSay(t, "still here")
	talks[1].MustSay(t, "still here")
	talks[0].Conn.Close()
	if next := fits(t, web); len(next) != 1 || next[0].MustSay(t, "hello") != left {
		t.Errorf("one client has gone, and %d are let in", len(next))
	}
}
