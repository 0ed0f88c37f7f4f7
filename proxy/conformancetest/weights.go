package conformancetest

import (
	"testing"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// weighted says where the unnamed port of a service is answered, and with which weights.
func weighted(name string, weights registry.Weights, addrs ...registry.Addr) change {
	return func(b *registry.Batch) {
		endpoints(name, addrs...)(b)
		b.Endpoints[named(name)].Weights = weights
	}
}

// The endpoints of these tests have a host each, for which the weights are.
var hosts = []string{"127.0.0.1:0", "127.0.0.2:0"}

func (s suite) TestAnEndpointOfWeightZeroKeepsItsClientsAndGetsNoOthers(t *testing.T) {
	proxytest.NeedsAddresses(t, "127.0.0.2")
	cfg := s.config()
	cfg.OnRemoval.Close = true // which is no removal
	n := newNode(t, cfg)
	port := proxytest.FreePort(t)
	first, second := proxytest.ServeTCP(t, hosts[0], proxytest.Chat("first")), proxytest.ServeTCP(t, hosts[1], proxytest.Chat("second"))
	n.apply(service("web", tcp(port)), endpoints("web", first.Addr, second.Addr))
	kept := proxytest.TalkTo(t, proxytest.On(port))
	if who := kept.MustSay(t, "hello"); who != "first" {
		t.Fatalf("the first client was given %s", who)
	}
	n.apply(weighted("web", registry.Weights(first.Addr.IP.Addr().String()+"=0"), first.Addr, second.Addr))
	for range 6 {
		if who := proxytest.TalkTo(t, proxytest.On(port)).MustSay(t, "hello"); who != "second" {
			t.Errorf("a client was given %s, whose weight is 0", who)
		}
	}
	kept.MustSay(t, "still here")
	n.apply(weighted("web", registry.Weights(first.Addr.IP.Addr().String()+"=3"), first.Addr, second.Addr))
	of := make(map[string]int)
	for range 8 {
		of[proxytest.TalkTo(t, proxytest.On(port)).MustSay(t, "hello")]++
	}
	if of["first"] != 6 || of["second"] != 2 {
		t.Errorf("of 8 clients the endpoints of weights 3 and 1 were given %v", of)
	}
}

// A client that is given no endpoint because of the weights is told from one of a service without endpoints, over UDP too.
func (s suite) TestADatagramForAServiceOfWeightZeroIsCountedAsThat(t *testing.T) {
	n := newNode(t, s.config())
	port := proxytest.FreePort(t)
	only := proxytest.ServeUDP(t, hosts[0], proxytest.IdentifyUDP("only"))
	n.apply(service("dns", udp(port)), weighted("dns", "127.0.0.1=0", only.Addr))
	client := proxytest.DialUDP(t, proxytest.On(port))
	client.Write([]byte("lost"))
	proxytest.Eventually(t, func() bool { return totalsOf(n, "dns").Dropped[traffic.DropZeroWeight] == 1 }, "the datagram is dropped for the weight")
	n.apply(weighted("dns", "", only.Addr))
	if a := client.Ask(t); a.Name != "only" {
		t.Errorf("answered by %s", a.Name)
	}
	n.apply(endpoints("dns"))
	client.Write([]byte("lost"))
	proxytest.Eventually(t, func() bool { return totalsOf(n, "dns").Dropped[traffic.DropNoEndpoints] == 1 }, "the datagram is dropped for want of endpoints")
}

func (s suite) TestASessionStaysWithAnEndpointOfWeightZero(t *testing.T) {
	proxytest.NeedsAddresses(t, "127.0.0.2")
	n := newNode(t, s.config())
	port := proxytest.FreePort(t)
	first, second := proxytest.ServeUDP(t, hosts[0], proxytest.IdentifyUDP("first")), proxytest.ServeUDP(t, hosts[1], proxytest.IdentifyUDP("second"))
	n.apply(service("dns", udp(port)), endpoints("dns", first.Addr, second.Addr))
	client := proxytest.DialUDP(t, proxytest.On(port))
	had := client.Ask(t)
	n.apply(weighted("dns", "127.0.0.1=0", first.Addr, second.Addr))
	if got := client.Ask(t); got != had {
		t.Errorf("the session was %v and is %v", had, got)
	}
	for range 4 {
		if a := proxytest.DialUDP(t, proxytest.On(port)).Ask(t); a.Name != "second" {
			t.Errorf("a new session was given %s", a.Name)
		}
	}
}
