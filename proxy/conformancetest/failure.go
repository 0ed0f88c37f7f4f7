package conformancetest

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// Endpoints that refuse, stay silent, come back, or are not there at all.

func (s suite) TestARefusingEndpointIsPassedOver(t *testing.T) { // D37
	cfg := s.config()
	n := newNode(t, cfg)
	addr := tcpThrough(t, n,
		proxytest.Refusing(t), served(t, proxytest.Identify("1")),
		proxytest.Refusing(t), served(t, proxytest.Identify("2")))
	answers := make(map[string]int)
	for range 20 {
		answers[proxytest.WhoAnswers(t, addr)]++
	}
	if answers["1"] < 5 || answers["2"] < 5 {
		t.Errorf("the endpoints that are well got %v of 20 clients; want about half each", answers)
	}
}

// A silent endpoint costs the first client a quarter of a second, and the clients after it nothing.
func (s suite) TestBesideASilentEndpointAnotherIsTried(t *testing.T) {
	cfg := s.config()
	cfg.DialTimeout = 10 * time.Second
	n := newNode(t, cfg)
	addr := tcpThrough(t, n, proxytest.BlackHole(t), served(t, proxytest.Identify("alive")))
	const stagger = 250 * time.Millisecond
	start := time.Now()
	if got := proxytest.WhoAnswers(t, addr); got != "alive" {
		t.Errorf("answered by %q", got)
	}
	if took := time.Since(start); took < stagger || took > cfg.DialTimeout/2 {
		t.Errorf("the first client was answered after %v; want a little more than %v", took, stagger)
	}
	for range 3 {
		proxytest.WhoAnswers(t, addr)
	}
	for _, e := range n.balancer.Status() {
		if silent := e.Failures > 0; e.Failures > 1 || silent == e.EjectedUntil.IsZero() {
			t.Errorf("after four clients %v has failed %d times, and is ejected until %v", e.Addr, e.Failures, e.EjectedUntil)
		}
	}
}

// The dial that was given up because another endpoint was faster is no longer counted as under way.
func (s suite) TestADialThatWasOutrunIsNotUnderWay(t *testing.T) {
	cfg := s.config()
	cfg.MaxDialsPerEndpoint = 1
	cfg.DialTimeout = 500 * time.Millisecond
	n := newNode(t, cfg)
	silent := proxytest.BlackHole(t)
	addr := tcpThrough(t, n, silent, served(t, proxytest.Identify("alive")))
	if got := proxytest.WhoAnswers(t, addr); got != "alive" {
		t.Errorf("answered by %q", got)
	}
	n.apply(endpoints("web", silent))
	if !proxytest.Refuses(addr) {
		t.Error("a client of a silent endpoint was not turned away")
	}
	if !proxytest.Becomes(func() bool { return totalsOf(n, "web").Ended[traffic.DialFailed] == 1 }) {
		t.Errorf("it has not ended because of %s, but %d because of %s", traffic.DialFailed, totalsOf(n, "web").Ended[traffic.DialLimit], traffic.DialLimit)
	}
}

// A client need not wait until it has an endpoint: what it says meanwhile, and that it has finished,
// reaches the one that it is given in the end.
func (s suite) TestWhatAClientSaysWhileItsEndpointIsDialledIsNotLost(t *testing.T) {
	cfg := s.config()
	cfg.DialTimeout = 300 * time.Millisecond
	n := newNode(t, cfg)
	client := proxytest.Dial(t, tcpThrough(t, n, proxytest.BlackHole(t), served(t, func(conn *net.TCPConn) {
		question, err := io.ReadAll(conn)
		fmt.Fprintf(conn, "%s %v", question, err)
	})))
	io.WriteString(client, "question")
	client.CloseWrite()
	if answer, err := io.ReadAll(client); string(answer) != "question <nil>" || err != nil {
		t.Errorf("got %q, %v; want the question repeated", answer, err)
	}
}

// D36: v0.4 dialled inside its accept loop, so that one endpoint that had gone made every client of
// the service wait.
func (s suite) TestNobodyWaitsForAnothersDial(t *testing.T) {
	const clients, dial = 50, time.Second
	var quick int
	var longest time.Duration
	for range 5 { // on a busy machine some are late, but not each time
		if quick, longest = s.besideDials(t, clients, dial); quick >= clients/2 && longest <= 3*dial/2 {
			return
		}
	}
	t.Errorf("%d of %d clients were answered in less than %v; want half at least. One waited %v; want no longer than its own dial", quick, clients, dial, longest)
}

// besideDials has clients come while others wait for a dial, and returns how many were answered sooner than one may take, and how long the last one waited.
func (s suite) besideDials(t *testing.T, clients int, dial time.Duration) (quick int, longest time.Duration) {
	cfg := s.config()
	cfg.DialTimeout, cfg.DialTotalTimeout = dial, 4*dial
	n := newNode(t, cfg)
	defer n.end()
	hole := proxytest.BlackHole(t)
	addr := tcpThrough(t, n, hole, served(t, proxytest.Identify("alive")))
	lost := proxytest.On(proxytest.FreePort(t))
	n.apply(service("lost", tcp(lost.Port())), endpoints("lost", hole))

	// All at once: half of them draw the silent endpoint, and wait for it side by side, while
	// others wait at a service that has no other.
	var asking sync.WaitGroup
	took := make(chan time.Duration, clients)
	start := time.Now()
	for range clients / 5 {
		asking.Go(func() {
			if !proxytest.Refuses(lost) {
				t.Error("a service whose only endpoint is silent did not turn its client away")
			}
		})
	}
	for range clients {
		asking.Go(func() {
			answer, err := proxytest.AskTCP(addr)
			took <- time.Since(start)
			if answer != "alive" || err != nil {
				t.Errorf("got %q, %v", answer, err)
			}
		})
	}
	asking.Wait()
	close(took)
	for d := range took {
		if longest = max(longest, d); d < dial {
			quick++
		}
	}
	return quick, longest
}

func (s suite) TestDiallingEndsAtItsTotalTimeout(t *testing.T) {
	cfg := s.config()
	cfg.DialTimeout, cfg.DialTotalTimeout = proxytest.Patience, 600*time.Millisecond // no endpoint has more time than there is in all
	n := newNode(t, cfg)
	addr := tcpThrough(t, n, proxytest.BlackHole(t), proxytest.BlackHole(t), proxytest.BlackHole(t), proxytest.BlackHole(t))
	start := time.Now()
	if !proxytest.Refuses(addr) {
		t.Error("the client was not turned away")
	}
	if took := time.Since(start); took < cfg.DialTotalTimeout/2 || took > cfg.DialTimeout/2 {
		t.Errorf("turned away after %v; want after about %v", took, cfg.DialTotalTimeout)
	}
}

func (s suite) TestAClientThatLeavesWhileItsEndpointIsDialledLeavesNothing(t *testing.T) {
	cfg := s.config()
	cfg.DialTimeout = 200 * time.Millisecond
	n := newNode(t, cfg)
	addr := tcpThrough(t, n, proxytest.BlackHole(t))
	before := proxytest.Sockets(t)
	for range 10 {
		proxytest.Reset(proxytest.Dial(t, addr))
	}
	proxytest.Eventually(t, func() bool { return proxytest.Sockets(t) == before }, "no socket left of ten clients that left")
}

func (s suite) TestAServiceWithoutEndpointsTurnsClientsAwayAtOnce(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	port := proxytest.FreePort(t)
	n.apply(service("web", tcp(port)))
	addr := proxytest.On(port)
	turnedAway := func(when string, with ...change) {
		t.Helper()
		var took time.Duration
		for range 5 { // a busy machine is late, but not each time
			if len(with) > 0 {
				n.apply(with...)
			}
			start := time.Now()
			// A reset, and not a clean end, which a client could take for an empty answer.
			if answer, err := proxytest.AskTCP(addr); answer != "" || err == nil {
				t.Errorf("%s: got %q, %v; want a reset", when, answer, err)
			}
			if took = time.Since(start); took <= time.Second {
				return
			}
			if len(with) > 0 { // so that these refuse for the first time once more
				with = []change{endpoints("web", proxytest.Refusing(t), proxytest.Refusing(t))}
			}
		}
		t.Errorf("%s: turned away after %v", when, took)
	}
	turnedAway("never any endpoints")
	n.apply(endpoints("web", served(t, proxytest.Identify("web"))))
	if got := proxytest.WhoAnswers(t, addr); got != "web" {
		t.Errorf("answered by %q", got)
	}
	n.apply(endpoints("web"))
	turnedAway("all endpoints removed")
	turnedAway("all endpoints refuse", endpoints("web", proxytest.Refusing(t), proxytest.Refusing(t)))
	turnedAway("all endpoints are known to refuse")
}

func (s suite) TestAnEndpointThatComesBackIsUsedAgain(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	gone := proxytest.Refusing(t)
	addr := tcpThrough(t, n, gone, served(t, proxytest.Identify("other")))
	for range 4 { // it is found out
		if got := proxytest.WhoAnswers(t, addr); got != "other" {
			t.Fatalf("answered by %q", got)
		}
	}
	proxytest.ServeTCP(t, gone.String(), proxytest.Identify("back"))
	proxytest.Eventually(t, func() bool { return proxytest.WhoAnswers(t, addr) == "back" }, "an answer from the endpoint that came back")
}

// Passing over must never come to nothing: an endpoint that was just found dead is tried when there
// is no other.
func (s suite) TestTheOnlyEndpointIsTriedEvenIfItHasJustRefused(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	only := proxytest.Refusing(t)
	addr := tcpThrough(t, n, only)
	for range 5 {
		if !proxytest.Refuses(addr) {
			t.Fatal("not turned away")
		}
	}
	proxytest.ServeTCP(t, only.String(), proxytest.Identify("back"))
	if got := proxytest.WhoAnswers(t, addr); got != "back" {
		t.Errorf("answered by %q", got)
	}
}

func (s suite) TestARemovedEndpointGetsNoNewConnections(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	stays, goes := served(t, proxytest.Identify("stays")), served(t, proxytest.Identify("goes"))
	addr := tcpThrough(t, n, stays, goes)
	for range 50 {
		n.apply(endpoints("web", stays))
		for range 3 {
			if got := proxytest.WhoAnswers(t, addr); got != "stays" {
				t.Fatalf("a client that came after its removal was answered by the endpoint that %s", got)
			}
		}
		n.apply(endpoints("web", stays, goes))
	}
}

func (s suite) TestChangesOfEndpointsRefuseNobody(t *testing.T) { // D32
	cfg := s.config()
	n := newNode(t, cfg)
	var addrs []registry.Addr
	for i := range 5 {
		addrs = append(addrs, served(t, proxytest.Identify(fmt.Sprint(i))))
	}
	addr := tcpThrough(t, n, addrs...)
	done := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for asked := 0; !isClosed(done); asked++ {
				if _, err := proxytest.AskTCP(addr); err != nil {
					t.Errorf("client %d: %v", asked, err)
					return
				}
			}
		})
	}
	for i := range times(500) {
		n.apply(endpoints("web", addrs[i%5:]...))
		n.apply(endpoints("web", addrs[:1+i%5]...))
	}
	close(done)
	clients.Wait()
}

// What was begun is finished: only its two ends can end a connection, not what becomes of the
// records behind it.
func (s suite) TestEstablishedConnectionsOutliveTheirRecords(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	a := served(t, proxytest.Chat("a"))
	addr := tcpThrough(t, n, a)
	talk := proxytest.TalkTo(t, addr)
	still := func(what string) {
		t.Helper()
		if got := talk.MustSay(t, what); got != "a" {
			t.Errorf("%s: answered by %q", what, got)
		}
	}
	still("hello")
	n.apply(endpoints("web", served(t, proxytest.Chat("b"))))
	still("after the endpoint was replaced")
	n.apply(endpoints("web"))
	still("after all endpoints were removed")
	n.apply(service("web", tcp(proxytest.FreePort(t))))
	still("after the service moved to another port")
	n.apply(noService("web"))
	still("after the service was removed")
	n.apply(service("other", tcp(addr.Port())), endpoints("other", served(t, proxytest.Chat("c"))))
	still("after another service took the port")
	if got := proxytest.TalkTo(t, addr).MustSay(t, "hello"); got != "c" {
		t.Errorf("a new client was answered by %q", got)
	}
}

func (s suite) TestAnEndpointMayBeAHostName(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	web := served(t, proxytest.Identify("web"))
	addr := tcpThrough(t, n, host("localhost", web.IP.Port()))
	if got := proxytest.WhoAnswers(t, addr); got != "web" {
		t.Errorf("answered by %q", got)
	}
	dns := servedUDP(t, "dns")
	if got := proxytest.DialUDP(t, udpThrough(t, n, host("localhost", dns.IP.Port()))).Ask(t).Name; got != "dns" {
		t.Errorf("answered by %q", got)
	}
}

func (s suite) TestAHostNameThatIsNotKnownIsPassedOver(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	nowhere := host("no..such.name", 80) // no name at all, so that no name server is asked
	addr := tcpThrough(t, n, nowhere, served(t, proxytest.Identify("web")))
	for range 3 {
		if got := proxytest.WhoAnswers(t, addr); got != "web" {
			t.Errorf("answered by %q", got)
		}
	}
	udpAddr := udpThrough(t, n, nowhere, servedUDP(t, "dns"))
	for range 3 {
		if got := proxytest.DialUDP(t, udpAddr).AskOften(t).Name; got != "dns" {
			t.Errorf("answered by %q", got)
		}
	}
	n.apply(endpoints("web", nowhere))
	if !proxytest.Refuses(addr) {
		t.Error("a client of a service whose only endpoint is a name that is not known was not turned away")
	}
}

// Every combination of where clients come from and where endpoints are. (Of endpoints of both families a client is given its own first.)
func (s suite) TestBothFamiliesAreServed(t *testing.T) {
	proxytest.NeedsAddresses(t, "127.0.0.2")
	v4, v6 := proxytest.Loopback, netip.IPv6Loopback()
	for _, c := range []struct {
		bind            netip.Addr
		serves, refuses []netip.Addr
	}{
		{netip.IPv4Unspecified(), []netip.Addr{v4, v6, netip.MustParseAddr("127.0.0.2")}, nil}, // as v0.4's wildcard
		{netip.IPv6Unspecified(), []netip.Addr{v6}, nil},
		{v4, []netip.Addr{v4}, []netip.Addr{v6, netip.MustParseAddr("127.0.0.2")}},
		{v6, []netip.Addr{v6}, []netip.Addr{v4}},
	} {
		t.Run("bound to "+c.bind.String(), func(t *testing.T) {
			cfg := s.config()
			cfg.BindAddress = c.bind
			n := newNode(t, cfg)
			ports := map[string]uint16{"v4": proxytest.FreePort(t), "v6": proxytest.FreePort(t)} // by the family of the endpoints
			for name, at := range map[string]string{"v4": "127.0.0.1:0", "v6": "[::1]:0"} {
				n.apply(
					service("web-"+name, tcp(ports[name])), endpoints("web-"+name, proxytest.ServeTCP(t, at, proxytest.Identify(name)).Addr),
					service("dns-"+name, udp(ports[name])), endpoints("dns-"+name, proxytest.ServeUDP(t, at, proxytest.IdentifyUDP(name)).Addr))
			}
			for _, ip := range c.serves {
				for name, port := range ports {
					addr := netip.AddrPortFrom(ip, port)
					if got := proxytest.WhoAnswers(t, addr); got != name {
						t.Errorf("tcp %s is answered by %s; want %s", addr, got, name)
					}
					if got := proxytest.DialUDP(t, addr).Ask(t).Name; got != name {
						t.Errorf("udp %s is answered by %s; want %s", addr, got, name)
					}
				}
			}
			for _, ip := range c.refuses {
				addr := netip.AddrPortFrom(ip, ports["v4"])
				if !proxytest.Refuses(addr) {
					t.Errorf("tcp %s is served", addr)
				}
				if !proxytest.RefusesUDP(t, addr) {
					t.Errorf("udp %s is served", addr)
				}
			}
		})
	}
}
