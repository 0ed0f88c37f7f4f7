package conformancetest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// Ports open and close as services say, and other services do not notice.

// These four are v0.4's own tests of its proxier (section 6 of the compatibility text, 23 to 27),
// with its own two servers: HTTP over TCP, and an echo over UDP.

func httpServer(t *testing.T) registry.Addr {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.URL.Path[1:])
	}))
	t.Cleanup(server.Close)
	return proxytest.At(netip.MustParseAddrPort(server.Listener.Addr().String()))
}

// get asks the HTTP server to say something, on a connection of its own.
func get(addr netip.AddrPort, something string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: proxytest.Patience}
	answer, err := client.Get("http://" + addr.String() + "/" + something)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

func echo(t *testing.T, addr netip.AddrPort, something string) (string, error) {
	t.Helper()
	client := proxytest.DialUDP(t, addr)
	defer client.Close()
	answer, err := client.Exchange([]byte(something))
	return string(answer), err
}

// v04 runs one of v0.4's tests for both protocols: works and closed tell how things stand at addr.
func (s suite) v04(t *testing.T, test func(t *testing.T, n *node, port func(uint16) registry.Port, works, closed func(uint16))) {
	cfg := s.config()
	for _, protocol := range []registry.Protocol{registry.TCP, registry.UDP} {
		t.Run(protocol.String(), func(t *testing.T) {
			n := newNode(t, cfg)
			backend, refuses := httpServer, func(at netip.AddrPort) bool { return proxytest.Refuses(at) }
			ask := func(at netip.AddrPort, something string) (string, error) { return get(at, something) }
			if protocol == registry.UDP {
				backend = func(t *testing.T) registry.Addr { return proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP).Addr }
				refuses = func(at netip.AddrPort) bool { return proxytest.RefusesUDP(t, at) }
				ask = func(at netip.AddrPort, something string) (string, error) { return echo(t, at, something) }
			}
			n.apply(endpoints("echo", backend(t)))
			test(t, n,
				func(number uint16) registry.Port { return registry.Port{Protocol: protocol, Number: number} },
				func(number uint16) {
					t.Helper()
					if got, err := ask(proxytest.On(number), "hello-world"); got != "hello-world" || err != nil {
						t.Errorf("port %d: got %q, %v; want what was said", number, got, err)
					}
				},
				func(number uint16) {
					t.Helper()
					if !refuses(proxytest.On(number)) {
						t.Errorf("port %d is still open", number)
					}
				})
		})
	}
}

func (s suite) TestDataPassesThroughTheProxyAndBack(t *testing.T) {
	s.v04(t, func(t *testing.T, n *node, port func(uint16) registry.Port, works, closed func(uint16)) {
		number := proxytest.FreePort(t)
		n.apply(service("echo", port(number)))
		works(number)
	})
}

func (s suite) TestABatchWithoutTheServiceClosesItsPort(t *testing.T) {
	s.v04(t, func(t *testing.T, n *node, port func(uint16) registry.Port, works, closed func(uint16)) {
		number := proxytest.FreePort(t)
		n.apply(service("echo", port(number)))
		works(number)
		n.apply(noService("echo"))
		closed(number)
	})
}

func (s suite) TestAServiceThatCameBackWorksOnItsPortAgain(t *testing.T) {
	s.v04(t, func(t *testing.T, n *node, port func(uint16) registry.Port, works, closed func(uint16)) {
		number := proxytest.FreePort(t)
		n.apply(service("echo", port(number)))
		works(number)
		n.apply(noService("echo"))
		closed(number)
		n.apply(service("echo", port(number)))
		works(number)
	})
}

func (s suite) TestAChangeOfPortClosesTheOldOneAndFreesIt(t *testing.T) {
	s.v04(t, func(t *testing.T, n *node, port func(uint16) registry.Port, works, closed func(uint16)) {
		old, new := proxytest.FreePort(t), proxytest.FreePort(t)
		n.apply(service("echo", port(old)))
		works(old)
		n.apply(service("echo", port(new)))
		closed(old)
		works(new)
		addr := proxytest.On(old).String()
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatalf("the old port cannot be used by others: %v", err)
		}
		l.Close()
		p, err := net.ListenPacket("udp", addr)
		if err != nil {
			t.Fatalf("the old port cannot be used by others: %v", err)
		}
		p.Close()
	})
}

func (s suite) TestAChangeOfProtocolReopensThePort(t *testing.T) { // D33
	cfg := s.config()
	n := newNode(t, cfg)
	port := proxytest.FreePort(t)
	at := proxytest.On(port)
	web, dns := served(t, proxytest.Identify("tcp")), servedUDP(t, "udp")
	n.apply(service("both", tcp(port)), endpoints("both", web))
	if got := proxytest.WhoAnswers(t, at); got != "tcp" {
		t.Errorf("answered by %q", got)
	}
	n.apply(service("both", udp(port)), endpoints("both", dns))
	if !proxytest.Refuses(at) {
		t.Error("tcp is still served")
	}
	if got := proxytest.DialUDP(t, at).Ask(t).Name; got != "udp" {
		t.Errorf("answered by %q", got)
	}
	n.apply(service("both", tcp(port)), endpoints("both", web))
	if !proxytest.RefusesUDP(t, at) {
		t.Error("udp is still served")
	}
	if got := proxytest.WhoAnswers(t, at); got != "tcp" {
		t.Errorf("answered by %q", got)
	}
}

func (s suite) TestOneNumberServesBothProtocols(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	port := proxytest.FreePort(t)
	n.apply(
		service("dns-tcp", tcp(port)), endpoints("dns-tcp", served(t, proxytest.Identify("tcp"))),
		service("dns", udp(port)), endpoints("dns", servedUDP(t, "udp")))
	if got := proxytest.WhoAnswers(t, proxytest.On(port)) + proxytest.DialUDP(t, proxytest.On(port)).Ask(t).Name; got != "tcpudp" {
		t.Errorf("answered by %q", got)
	}
}

// A claim on a port has another name now, so other endpoints; the port stays open.
func (s suite) TestAPortThatIsRenamedTakesOtherEndpoints(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	at := proxytest.On(proxytest.FreePort(t))
	n.apply(
		service("web", registry.Port{Name: "old", Number: at.Port()}),
		endpointsOf("web", "old", served(t, proxytest.Identify("old"))),
		endpointsOf("web", "new", served(t, proxytest.Identify("new"))))
	if got := proxytest.WhoAnswers(t, at); got != "old" {
		t.Errorf("answered by %q", got)
	}
	refused := hammer(t, at, func() { n.apply(service("web", registry.Port{Name: "new", Number: at.Port()})) })
	if refused > 0 {
		t.Errorf("%d clients were refused", refused)
	}
	if got := proxytest.WhoAnswers(t, at); got != "new" {
		t.Errorf("answered by %q", got)
	}
}

func (s suite) TestAPortRenamedWithItsEndpointsRefusesNobody(t *testing.T) {
	renamings := times(2000)
	cfg := s.config()
	n := newNode(t, cfg)
	number := proxytest.FreePort(t)
	web := served(t, proxytest.Identify("web"))
	rename := func(name string) {
		n.apply(service("web", registry.Port{Name: name, Number: number}), endpointsOf("web", name, web))
	}
	rename("first")
	refused := hammer(t, proxytest.On(number), func() {
		for i := range renamings {
			rename(fmt.Sprint("name-", i))
		}
	})
	if refused > 0 {
		t.Errorf("%d clients were turned away over %d renamings", refused, renamings)
	}
}

// Many services, and one batch that changes all of them.
func (s suite) TestALargeBatchIsInEffectWhenItReturns(t *testing.T) {
	const services = 200
	cfg := s.config()
	n := newNode(t, cfg)
	web := served(t, proxytest.Identify("web"))
	var open, move, gone []change
	var before, after []uint16
	for i := range services {
		name := fmt.Sprint("web-", i)
		before, after = append(before, proxytest.FreePort(t)), append(after, proxytest.FreePort(t))
		open = append(open, service(name, tcp(before[i])), endpoints(name, web))
		move = append(move, service(name, tcp(after[i])))
		gone = append(gone, noService(name))
	}
	check := func(open, closed []uint16) {
		t.Helper()
		for _, port := range open {
			if got := proxytest.WhoAnswers(t, proxytest.On(port)); got != "web" {
				t.Errorf("port %d is answered by %q", port, got)
			}
		}
		for _, port := range closed {
			if !proxytest.Refuses(proxytest.On(port)) {
				t.Errorf("port %d is open", port)
			}
		}
	}
	n.apply(open...)
	check(before, after)
	n.apply(move...)
	check(after, before)
	n.apply(gone...)
	check(nil, slices.Concat(before, after))
}
