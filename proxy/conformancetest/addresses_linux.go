package conformancetest

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"kubeproxy/proxy"
	"kubeproxy/proxy/anyip"
	"kubeproxy/proxy/ports"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// Services listen at addresses of their own, several on one port, beside one that has the port at the node.

// atAddress gives ports at an address, over both protocols.
func atAddress(addr string, number uint16) []registry.Port {
	at := netip.MustParseAddr(addr)
	return []registry.Port{{Addr: at, Protocol: registry.TCP, Number: number}, {Addr: at, Protocol: registry.UDP, Number: number}}
}

// whoIsAt fails the test unless a service answers at an address, over both protocols.
func whoIsAt(t *testing.T, addr string, number uint16, want string) {
	t.Helper()
	at := netip.AddrPortFrom(netip.MustParseAddr(addr), number)
	if name := proxytest.WhoAnswers(t, at); name != want {
		t.Errorf("%q answers at %s over TCP; want %q", name, at, want)
	}
	client := proxytest.DialUDP(t, at)
	defer client.Close()
	if name := client.Ask(t).Name; name != want {
		t.Errorf("%q answers at %s over UDP; want %q", name, at, want)
	}
}

// The addresses of the tests below, of which the loopback has all.
var ownAddresses = []string{"127.77.0.10", "127.77.0.11", "127.77.0.12", "::1"}

// serveAtAddresses has the node serve one service at each of ownAddresses, of the same name.
func serveAtAddresses(t *testing.T, n *node, number uint16) {
	t.Helper()
	var changes []change
	for _, addr := range ownAddresses {
		changes = append(changes, service(addr, atAddress(addr, number)...), answers(t, addr))
	}
	n.apply(changes...)
}

// answers gives a service endpoints that say its name, over both protocols.
func answers(t *testing.T, name string) change {
	t.Helper()
	tcp, udp := served(t, proxytest.Identify(name)), servedUDP(t, name)
	return func(b *registry.Batch) {
		b.Services[named(name)].Ports = byProtocol(b.Services[named(name)].Ports)
		endpointsOf(name, "t", tcp)(b)
		endpointsOf(name, "u", udp)(b)
	}
}

// byProtocol names the ports of a service by their protocols, so each has endpoints of its own.
func byProtocol(ports []registry.Port) []registry.Port {
	for i := range ports {
		ports[i].Name = map[registry.Protocol]string{registry.TCP: "t", registry.UDP: "u"}[ports[i].Protocol]
	}
	return ports
}

func (s suite) TestServicesListenAtAddressesOfTheirOwn(t *testing.T) {
	for _, bind := range []string{"127.0.0.1", "0.0.0.0"} {
		t.Run(bind, func(t *testing.T) {
			cfg := s.config()
			cfg.BindAddress = netip.MustParseAddr(bind)
			n := newNode(t, cfg)
			number := proxytest.FreePort(t)
			serveAtAddresses(t, n, number)
			all := func() {
				t.Helper()
				for _, addr := range ownAddresses {
					whoIsAt(t, addr, number, addr)
				}
			}
			all()
			n.apply(service("node", tcp(number), udp(number)), answers(t, "node")) // the others are open
			all()
			whoIsAt(t, "127.0.0.1", number, "node")
			n.apply(noService("127.77.0.10"))
			if at := netip.AddrPortFrom(netip.MustParseAddr("127.77.0.10"), number); bind == "0.0.0.0" {
				whoIsAt(t, "127.77.0.10", number, "node")
			} else if !proxytest.Refuses(at) {
				t.Errorf("%s is still open", at)
			}
			n.apply(service("127.77.0.10", atAddress("127.77.0.10", number)...), answers(t, "127.77.0.10")) // the node's is open
			all()
			n.apply(noService("node"))
			all()
			if !proxytest.Refuses(proxytest.On(number)) {
				t.Error("the port of the node is still open")
			}
		})
	}
}

func (s suite) TestServicesThatSwapAddressesRefuseNobody(t *testing.T) {
	n := newNode(t, s.config())
	number := proxytest.FreePort(t)
	serveAtAddresses(t, n, number)
	a, b := ownAddresses[0], ownAddresses[1]
	refused := hammer(t, netip.AddrPortFrom(netip.MustParseAddr(a), number), func() {
		for range times(200) {
			n.apply(service(a, byProtocol(atAddress(b, number))...), service(b, byProtocol(atAddress(a, number))...))
			n.apply(service(a, byProtocol(atAddress(a, number))...), service(b, byProtocol(atAddress(b, number))...))
		}
		n.apply(service(a, byProtocol(atAddress(b, number))...), service(b, byProtocol(atAddress(a, number))...))
	})
	if refused > 0 {
		t.Errorf("%d clients were refused", refused)
	}
	whoIsAt(t, a, number, b)
	whoIsAt(t, b, number, a)
}

// One port is at an address that -allowed_listen excludes or that the node lacks. The other ports open.
func (s suite) TestAnAddressThatCannotBeHadIsSaidAndOthersServe(t *testing.T) {
	cfg := s.config()
	cfg.BindAddress = netip.IPv4Unspecified()
	n := newNode(t, cfg)
	number := proxytest.FreePort(t)
	wanted := append(atAddress("192.0.2.77", number), append(atAddress("127.0.0.1", number), atAddress("127.77.0.10", number)...)...)
	n.tell(service("web", wanted...), answers(t, "web"))
	whoIsAt(t, "127.77.0.10", number, "web")
	for _, status := range n.Status() {
		switch status.ID.Address() {
		case "192.0.2.77":
			if !errors.Is(status.Err, ports.ErrNotHere) || status.Refused {
				t.Errorf("%s: %v; want that the node does not have it", status.ID, status.Err)
			}
		case "127.0.0.1":
			if status.Err == nil || !status.Refused {
				t.Errorf("%s: %v; want that it is the node's", status.ID, status.Err)
			}
		default:
			if status.Err != nil {
				t.Errorf("%s: %v", status.ID, status.Err)
			}
		}
	}
}

// A listener of a service is no endpoint, at whatever address it is; the same port elsewhere may be one.
func (s suite) TestAListenerAtAnAddressIsNoEndpoint(t *testing.T) {
	n := newNode(t, s.config())
	number := proxytest.FreePort(t)
	at := netip.MustParseAddr("127.77.0.10")
	beside := proxytest.ServeTCP(t, netip.AddrPortFrom(netip.MustParseAddr("127.77.0.12"), number).String(), proxytest.Identify("beside")).Addr
	n.apply(service("web", registry.Port{Addr: at, Number: number}), endpoints("web", proxytest.At(netip.AddrPortFrom(at, number)), beside))
	for range 4 {
		if name := proxytest.WhoAnswers(t, netip.AddrPortFrom(at, number)); name != "beside" {
			t.Errorf("%q answers", name)
		}
	}
	if got := totalsOf(n, "web").Begun; got != 4 {
		t.Errorf("%d connections began; want the clients' 4", got)
	}
}

// What an address of a service means for its clients counts for it alone.
func (s suite) TestAddressesOfAServiceMayHaveTermsOfTheirOwn(t *testing.T) {
	cfg := s.config()
	onNode(&cfg)
	n := newNode(t, cfg)
	number := proxytest.FreePort(t)
	ports := map[string]registry.Port{"127.77.0.10": {Open: true}, "127.77.0.11": {}, "127.77.0.12": {Open: true, Local: true}}
	var all []registry.Port
	for _, protocol := range []registry.Protocol{registry.TCP, registry.UDP} {
		for addr, p := range ports {
			p.Addr, p.Protocol, p.Number = netip.MustParseAddr(addr), protocol, number
			all = append(all, p)
		}
	}
	n.apply(service("web", all...), answers(t, "web"), func(b *registry.Batch) {
		b.Services[named("web")].Asked = &registry.Terms{SourceRanges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	})
	whoIsAt(t, "127.77.0.10", number, "web")
	for addr, reason := range map[string]traffic.Reason{"127.77.0.11": traffic.SourceNotAllowed, "127.77.0.12": traffic.NoLocalEndpoint} {
		before := totalsOf(n, "web").Ended[reason]
		if name, err := proxytest.AskTCP(netip.AddrPortFrom(netip.MustParseAddr(addr), number)); err == nil {
			t.Errorf("%q answers at %s", name, addr)
		}
		proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Ended[reason] > before }, "the client at %s leaves because of %s", addr, reason)
	}
}

// TestServicesListenAtAddressesOfARange that no interface has, of both families, and clients of the node come from the loopback.
func (s suite) TestServicesListenAtAddressesOfARange(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	cfg := s.config()
	cfg.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:96::/108")}
	n := newNode(t, cfg)
	number := proxytest.FreePort(t)
	addrs := []string{"10.96.0.10", "10.111.255.254", "fd00:96::a", "fd00:96::ffff"}
	var changes []change
	for _, addr := range addrs {
		changes = append(changes, service(addr, atAddress(addr, number)...), answers(t, addr))
	}
	n.tell(changes...)
	at := netip.AddrPortFrom(netip.MustParseAddr(addrs[0]), number)
	waits := func(s proxy.PortStatus) bool { return s.ID.Addr == at.Addr() && errors.Is(s.Err, ports.ErrNotHere) }
	proxytest.Eventually(t, func() bool { return slices.ContainsFunc(n.Status(), waits) }, "the port to wait for its address")
	routes, err := anyip.Open(cfg.ServiceRanges, "")
	if err == nil {
		err = routes.Install()
	}
	if err != nil {
		t.Fatal(err)
	}
	proxytest.Eventually(t, func() bool {
		return !slices.ContainsFunc(n.Status(), func(s proxy.PortStatus) bool { return s.Err != nil })
	}, "all ports to open")
	for _, addr := range addrs {
		whoIsAt(t, addr, number, addr)
	}
	conn := proxytest.Dial(t, at)
	if from := conn.LocalAddr().(*net.TCPAddr).IP; !from.IsLoopback() {
		t.Errorf("a client of the node comes from %v", from)
	}
}

// The limit is of the port of the service, as that of TCP is, not of each address at which it listens.
func (s suite) TestTheSessionsOfAServiceCountOverAllOfItsAddresses(t *testing.T) {
	n := newNode(t, s.config())
	number := proxytest.FreePort(t)
	var at []netip.AddrPort
	var ports []registry.Port
	for _, addr := range ownAddresses[:2] {
		of := registry.Port{Addr: netip.MustParseAddr(addr), Protocol: registry.UDP, Number: number}
		at, ports = append(at, netip.AddrPortFrom(of.Addr, number)), append(ports, of)
	}
	n.apply(asking("dns", registry.Terms{Limits: registry.Limits{Connections: 2}}, ports...), endpoints("dns", servedUDP(t, "dns")))
	for _, to := range at { // one session at each, of a client that is known
		c := proxytest.DialUDP(t, to)
		c.AskOften(t)
		c.AskOften(t)
	}
	for _, to := range at {
		if !proxytest.DialUDP(t, to).Drops() {
			t.Errorf("a third session of the service was let in at %v", to)
		}
	}
	if got := totalsOf(n, "dns"); got.Dropped[traffic.DropServiceLimit] == 0 || got.Active != 2 {
		t.Errorf("there are %d sessions; dropped %v", got.Active, got.Dropped)
	}
}
