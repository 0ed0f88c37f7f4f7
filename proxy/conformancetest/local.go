package conformancetest

import (
	"net"
	"net/netip"
	"sync"
	"testing"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// What an ending says of the way to the endpoint, and what is counted when a client comes.

// told has endings sent to a channel, with the proxy's own address in each.
func (s suite) told() (n func(t *testing.T) *node, endings chan traffic.Ending) {
	cfg := s.config()
	endings = make(chan traffic.Ending, 8)
	cfg.NoteLocal = true
	cfg.Ended = func(e traffic.Ending) { endings <- e }
	return func(t *testing.T) *node { return newNode(t, cfg) }, endings
}

func (s suite) TestTheEndingOfAConnectionHasTheAddressThatTheEndpointSaw(t *testing.T) {
	start, endings := s.told()
	n := start(t)
	seen := make(chan netip.AddrPort, 1)
	client := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		seen <- conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	})))
	want := proxytest.Receive(t, seen, "the endpoint to accept")
	proxytest.Discard(client)
	client.Close()
	if got := proxytest.Receive(t, endings, "the ending"); got.Local != want {
		t.Errorf("the proxy's own address is %v; the endpoint saw %v", got.Local, want)
	}
	if got := totalsOf(n, "web").Begun; got != 1 {
		t.Errorf("%d connections have begun; want 1", got)
	}
}

func (s suite) TestTheEndingOfASessionHasTheAddressThatTheEndpointSaw(t *testing.T) {
	start, endings := s.told()
	n := start(t)
	var mu sync.Mutex
	var want netip.AddrPort
	endpoint := proxytest.ServeUDP(t, "127.0.0.1:0", func(payload []byte, from netip.AddrPort) []byte {
		mu.Lock()
		defer mu.Unlock()
		want = from
		return payload
	})
	port := proxytest.FreePort(t)
	n.apply(service("dns", udp(port)), endpoints("dns", endpoint.Addr))
	client := proxytest.DialUDP(t, proxytest.On(port))
	if _, err := client.Exchange([]byte("question")); err != nil {
		t.Fatal(err)
	}
	if got := totalsOf(n, "dns").Begun; got != 1 {
		t.Errorf("%d sessions have begun; want 1", got)
	}
	n.apply(noService("dns"))
	mu.Lock()
	defer mu.Unlock()
	if got := proxytest.Receive(t, endings, "the ending"); got.Local != want {
		t.Errorf("the proxy's own address is %v; the endpoint saw %v", got.Local, want)
	}
}

// TestTheStartOfAClientIsToldOnceWithItsEndpoint: when it is given its first endpoint, and not at all if it gets none.
func (s suite) TestTheStartOfAClientIsToldOnceWithItsEndpoint(t *testing.T) {
	cfg := s.config()
	starts, ends := make(chan traffic.Ending, 8), make(chan traffic.Ending, 8)
	cfg.NoteLocal = true
	cfg.Began = func(e traffic.Ending) { starts <- e }
	cfg.Ended = func(e traffic.Ending) { ends <- e }
	n := newNode(t, cfg)
	web, echo := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("web")), proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP)
	ports := [...]uint16{proxytest.FreePort(t), proxytest.FreePort(t), proxytest.FreePort(t)}
	n.apply(service("web", tcp(ports[0])), endpoints("web", web.Addr), service("dns", udp(ports[1])), endpoints("dns", echo.Addr), service("none", tcp(ports[2])))
	want := func(kind string, to registry.Addr) {
		t.Helper()
		start := proxytest.Receive(t, starts, "the start of the client of "+kind)
		if start.Service.Name.Name != kind || start.Endpoint != to || !start.Local.IsValid() || start.Attempts != 1 || start.Received != 0 {
			t.Errorf("the start of a client of %s is told as %+v", kind, start)
		}
	}
	if _, err := proxytest.AskTCP(proxytest.On(ports[0])); err != nil {
		t.Fatal(err)
	}
	want("web", web.Addr)
	client := proxytest.DialUDP(t, proxytest.On(ports[1]))
	for range 2 {
		if _, err := client.Exchange([]byte("question")); err != nil {
			t.Fatal(err)
		}
	}
	want("dns", echo.Addr)
	if answer, err := proxytest.AskTCP(proxytest.On(ports[2])); err == nil {
		t.Fatalf("a client without an endpoint was answered %q", answer)
	}
	n.apply(noService("dns"))
	for range 3 {
		proxytest.Receive(t, ends, "the end of a client")
	}
	if len(starts) > 0 {
		t.Errorf("one more start is told: %+v", <-starts)
	}
}

func (s suite) TestAClientThatIsTurnedAwayCountsAsOneThatCame(t *testing.T) {
	start, endings := s.told()
	n := start(t)
	port := proxytest.FreePort(t)
	n.apply(service("web", tcp(port)))
	if answer, err := proxytest.AskTCP(proxytest.On(port)); err == nil {
		t.Fatalf("the client was answered %q", answer)
	}
	if got := proxytest.Receive(t, endings, "the ending"); got.Reason != traffic.NoEndpoints || got.Local.IsValid() {
		t.Errorf("the client left because of %v, from %v; want %v, and no address", got.Reason, got.Local, traffic.NoEndpoints)
	}
	if got := totalsOf(n, "web"); got.Begun != 1 || got.Active != 0 {
		t.Errorf("%d have begun, and %d are active; want 1 and 0", got.Begun, got.Active)
	}
}
