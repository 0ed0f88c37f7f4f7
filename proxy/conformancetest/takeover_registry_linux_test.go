package conformancetest

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"kubeproxy/proxy"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/removal"
	"kubeproxy/registry"
)

func TestTheConfigurationWaitsForTheEndOfATakeOver(t *testing.T) {
	nodes := newNodes(t, liveConfig(), 2)
	port, later := proxytest.FreePort(t), proxytest.FreePort(t)
	records := []change{service("web", tcp(port)), endpoints("web", served(t, proxytest.Identify("one")))}
	nodes[0].apply(records...)
	nodes[0].giveListeners(nodes[1], records...)
	applied := make(chan struct{})
	go func() {
		defer close(applied)
		nodes[0].tell(service("more", tcp(later)))
	}()
	items := nodes[0].freeze()
	if isClosed(applied) || len(nodes[0].Status()) != 1 {
		t.Error("the predecessor has opened a port that its successor was not told of")
	}
	for item := range items {
		for _, fd := range item.Descriptors {
			syscall.Close(fd)
		}
	}
	nodes[0].Thaw()
	proxytest.Receive(t, applied, "the configuration")
	if !proxytest.Listens(proxytest.On(later)) {
		t.Error("the port of the newest configuration is not open")
	}
}

func TestRotationHealthAndAffinityGoOnAfterATakeOver(t *testing.T) {
	nodes := newNodes(t, liveConfig(), 2)
	web, affine := proxytest.FreePort(t), proxytest.FreePort(t)
	named := func(name string) registry.Addr { return served(t, proxytest.Identify(name)) }
	dead := proxytest.Refusing(t)
	records := []change{
		service("web", tcp(web)), endpoints("web", named("a"), dead, named("b"), named("c")),
		sticky("sticky", time.Hour, tcp(affine)), endpoints("sticky", named("x"), named("y"), named("z")),
	}
	nodes[0].apply(records...)
	one, two := netip.MustParseAddr("127.0.0.3"), netip.MustParseAddr("127.0.0.4")
	ask := func(from netip.Addr, port uint16) string {
		answer, err := proxytest.AskTCPFrom(from, proxytest.On(port))
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	for i, want := range []string{"a", "b"} {
		if got := ask(one, web); got != want {
			t.Fatalf("client %d is answered by %q; want %q", i, got, want)
		}
	}
	ofOne, ofTwo := ask(one, affine), ask(two, affine)
	nodes[0].passTo(nodes[1], records...)
	if got := ask(one, web); got != "c" {
		t.Errorf("the next client is answered by %q; want c, whose turn it is", got)
	}
	ejected := slices.ContainsFunc(nodes[1].balancer.Status(), func(s rotation.EndpointStatus) bool { return s.Addr == dead && !s.EjectedUntil.IsZero() })
	if failures := totalsOf(nodes[1], "web").DialFailures; !ejected && failures == 0 {
		t.Error("nothing is known any more of the endpoint that does not answer")
	}
	if got := ask(two, affine); got != ofTwo {
		t.Errorf("the second client is answered by %q; before it was %q", got, ofTwo)
	}
	if got := ask(one, affine); got != ofOne {
		t.Errorf("the first client is answered by %q; before it was %q", got, ofOne)
	}
}

func TestTheIncumbentOfAPortKeepsItInATakeOver(t *testing.T) {
	nodes := newNodes(t, liveConfig(), 2)
	port := proxytest.FreePort(t)
	younger := []change{serviceSince("younger", 9, tcp(port)), endpoints("younger", served(t, proxytest.Identify("younger")))}
	older := []change{serviceSince("older", 3, tcp(port)), endpoints("older", served(t, proxytest.Identify("older")))}
	nodes[0].apply(younger...)
	nodes[0].apply(older...) // it waits, for the port is taken
	nodes[0].passTo(nodes[1], slices.Concat(older, younger)...)
	if name := proxytest.WhoAnswers(t, proxytest.On(port)); name != "younger" {
		t.Errorf("%s has the port; want younger, which had it before", name)
	}
}

func TestConnectionsOfAServiceThatTheSuccessorDoesNotKnowAreTreatedAsRemoved(t *testing.T) {
	for _, c := range []struct {
		removal removal.Policy
		goesOn  bool
	}{{removal.Policy{}, true}, {removal.Policy{Close: true}, false}} {
		for _, gone := range []string{"service", "endpoint"} {
			t.Run(gone, func(t *testing.T) {
				cfg := liveConfig()
				cfg.OnRemoval = c.removal
				nodes := newNodes(t, cfg, 2)
				port, dns := proxytest.FreePort(t), proxytest.FreePort(t)
				other := served(t, proxytest.Chat("other"))
				nodes[0].apply(service("web", tcp(port)), endpoints("web", served(t, proxytest.Chat("one"))),
					service("dns", udp(dns)), endpoints("dns", servedUDP(t, "one")))
				client := proxytest.TalkTo(t, proxytest.On(port))
				client.MustSay(t, "hello")
				session := proxytest.DialUDP(t, proxytest.On(dns))
				session.Ask(t)
				now := []change{service("another", tcp(proxytest.FreePort(t)))}
				if gone == "endpoint" {
					now = []change{service("web", tcp(port)), endpoints("web", other)}
				}
				nodes[0].passTo(nodes[1], now...)
				_, err := client.Say("still there?")
				if c.goesOn != (err == nil) {
					t.Errorf("goes on: %v; say: %v", c.goesOn, err)
				}
				proxytest.Eventually(t, func() bool { return totalsOf(nodes[1], "dns").Active == 0 }, "the end of the session, whose service is gone")
			})
		}
	}
}

func TestAListenerThatNobodyWantsAnyMoreIsClosed(t *testing.T) {
	onEachEngine(t, func(t *testing.T, cfg proxy.Config) {
		nodes := newNodes(t, cfg, 2)
		kept, gone := proxytest.FreePort(t), proxytest.FreePort(t)
		nodes[0].apply(service("web", tcp(kept), registry.Port{Name: "old", Protocol: registry.TCP, Number: gone}), endpoints("web", served(t, proxytest.Identify("one"))))
		nodes[0].giveListeners(nodes[1], service("web", tcp(kept)), endpoints("web", served(t, proxytest.Identify("two"))))
		nodes[1].Serve()
		nodes[0].Release()
		nodes[0].end()
		if proxytest.Listens(proxytest.On(gone)) {
			t.Error("the port is still open")
		}
		if name := proxytest.WhoAnswers(t, proxytest.On(kept)); name != "two" {
			t.Errorf("%q answers", name)
		}
	})
}
