package conformancetest

import (
	"net/netip"
	"testing"

	"kubeproxy/proxy"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// onNode has the node know where it is.
func onNode(cfg *proxy.Config) { cfg.Node = registry.Node{Name: "n", Zone: "east"} }

// local says that a service offers ports, whose clients are to be given endpoints on the node only.
func local(name string, ports ...registry.Port) change {
	return func(b *registry.Batch) {
		service(name, ports...)(b)
		b.Services[named(name)].SetTerms(registry.Terms{Local: true})
	}
}

// A zoned endpoint is one in a zone.
type zoned struct {
	zone string
	addr registry.Addr
}

// inZones says where the unnamed port of a service is answered, and in which zones.
func inZones(name string, all ...zoned) change {
	return func(b *registry.Batch) {
		zones := make(map[registry.Addr]string)
		var addrs []registry.Addr
		for _, z := range all {
			zones[z.addr], addrs = z.zone, append(addrs, z.addr)
		}
		endpoints(name, addrs...)(b)
		list := &b.Endpoints[named(name)].ByPort[0]
		list.Places = registry.PlacesOf(list.Addrs, func(a registry.Addr) (p registry.Place) {
			here := registry.Node{Zone: "east"}
			here.SetZone(&p, zones[a])
			here.HintZone(&p, zones[a])
			return p
		})
	}
}

// crossings returns how many clients of a service were given an endpoint in the zone of the node, and in another.
func crossings(n *node, name string) [2]uint64 {
	for r := range n.balancer.RotationStatus() {
		if r.Service.Name == named(name) {
			return r.Zones
		}
	}
	return [2]uint64{}
}

func (s suite) TestClientsStayInTheirZoneWhileItHasAnEndpointThatAnswers(t *testing.T) {
	cfg := s.config()
	onNode(&cfg)
	n := newNode(t, cfg)
	port := proxytest.FreePort(t)
	near, far := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("near")), served(t, proxytest.Identify("far"))
	places := inZones("web", zoned{"west", far}, zoned{"east", near.Addr})
	n.apply(service("web", tcp(port)), places)
	ask := func(want string) {
		t.Helper()
		for range 6 {
			if who, err := proxytest.AskTCP(proxytest.On(port)); who != want {
				t.Errorf("a client was given %q, %v; want %s", who, err, want)
			}
		}
	}
	ask("near")
	if got := crossings(n, "web"); got != [2]uint64{6, 0} {
		t.Errorf("of six clients %v are counted", got)
	}
	near.Close()
	ask("far") // the first of them after the endpoint near it refused
	if got := crossings(n, "web"); got != [2]uint64{6, 6} {
		t.Errorf("of twelve clients %v are counted", got)
	}
	again := proxytest.ServeTCP(t, near.Addr.String(), proxytest.Identify("near"))
	defer again.Close()
	proxytest.Eventually(t, func() bool { // once its ejection has ended
		who, _ := proxytest.AskTCP(proxytest.On(port))
		return who == "near"
	}, "clients to be given the endpoint in their zone again")
	ask("near")
}

func (s suite) TestSessionsStayInTheirZoneAndMoveOutOfItWithTheirLastEndpoint(t *testing.T) {
	cfg := s.config()
	onNode(&cfg)
	n := newNode(t, cfg)
	port := proxytest.FreePort(t)
	near, far := servedUDP(t, "near"), servedUDP(t, "far")
	n.apply(service("dns", udp(port)), inZones("dns", zoned{"west", far}, zoned{"east", near}))
	client := proxytest.DialUDP(t, proxytest.On(port))
	for range 4 {
		if a := proxytest.DialUDP(t, proxytest.On(port)).Ask(t); a.Name != "near" {
			t.Errorf("a session was given %s", a.Name)
		}
	}
	if a := client.Ask(t); a.Name != "near" {
		t.Errorf("a session was given %s", a.Name)
	}
	n.apply(inZones("dns", zoned{"west", far}))
	if a := client.Ask(t); a.Name != "far" {
		t.Errorf("when the endpoint in its zone has gone, the session has %s", a.Name)
	}
}

func (s suite) TestAClientIsGivenAnEndpointOfItsOwnFamily(t *testing.T) {
	proxytest.NeedsAddresses(t, "::1")
	cfg := s.config()
	cfg.BindAddress = netip.IPv4Unspecified() // which is both families
	n := newNode(t, cfg)
	four, six := served(t, proxytest.Identify("four")), proxytest.ServeTCP(t, "[::1]:0", proxytest.Identify("six"))
	fourUDP, sixUDP := servedUDP(t, "four"), proxytest.ServeUDP(t, "[::1]:0", proxytest.IdentifyUDP("six"))
	web, dns := proxytest.FreePort(t), proxytest.FreePort(t)
	n.apply(service("web", tcp(web)), endpoints("web", four, six.Addr), service("dns", udp(dns)), endpoints("dns", fourUDP, sixUDP.Addr))
	for range 4 {
		if who, err := proxytest.AskTCP(proxytest.On(web)); who != "four" {
			t.Errorf("a client over IPv4 was given %q, %v", who, err)
		}
		if who, err := proxytest.AskTCP(netip.AddrPortFrom(netip.IPv6Loopback(), web)); who != "six" {
			t.Errorf("a client over IPv6 was given %q, %v", who, err)
		}
		if a := proxytest.DialUDP(t, proxytest.On(dns)).Ask(t); a.Name != "four" {
			t.Errorf("a session over IPv4 was given %s", a.Name)
		}
		if a := proxytest.DialUDP(t, netip.AddrPortFrom(netip.IPv6Loopback(), dns)).Ask(t); a.Name != "six" {
			t.Errorf("a session over IPv6 was given %s", a.Name)
		}
	}
	six.Close()
	if who, err := proxytest.AskTCP(netip.AddrPortFrom(netip.IPv6Loopback(), web)); who != "four" {
		t.Errorf("a client over IPv6 was given %q, %v when no endpoint of its family answers", who, err)
	}
}

func (s suite) TestADatagramForAServiceOfPolicyLocalIsDroppedWithoutAnEndpointOnTheNode(t *testing.T) {
	cfg := s.config()
	onNode(&cfg)
	n := newNode(t, cfg)
	port := proxytest.FreePort(t)
	n.apply(local("dns", udp(port)), endpoints("dns", servedUDP(t, "elsewhere")))
	proxytest.DialUDP(t, proxytest.On(port)).Write([]byte("lost"))
	proxytest.Eventually(t, func() bool { return totalsOf(n, "dns").Dropped[traffic.DropNoLocalEndpoint] == 1 }, "the datagram is dropped for the policy")
}
