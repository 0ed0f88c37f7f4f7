package conformancetest

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// What datagrams owe to both ends, and which endpoint a client has for how long.

func (s suite) TestDatagramsOfEverySizePassWhole(t *testing.T) { // D41
	cfg := s.config()
	n := newNode(t, cfg)
	client := proxytest.DialUDP(t, udpThrough(t, n, proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP).Addr))
	for _, size := range []int{1, 0, 512, 1472, 4095, 4096, 4097, 8192, 9000, 32768, 65000, proxytest.MaxDatagram} {
		sent := bytes.Repeat([]byte{byte(size), 'x'}, size)[:size]
		got, err := client.Exchange(sent)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("sent %d bytes, got %d back, %v", size, len(got), err)
		}
	}
}

// A client takes an answer only from where it sent its question to. On a wildcard socket the kernel
// would choose another address of the machine (D45).
func (s suite) TestRepliesComeFromTheAddressSpokenTo(t *testing.T) {
	proxytest.NeedsAddresses(t, "127.0.0.2", "127.1.2.3")
	cfg := s.config()
	cfg.BindAddress = netip.IPv4Unspecified()
	n := newNode(t, cfg)
	port := udpThrough(t, n, servedUDP(t, "dns")).Port()
	for _, ip := range []string{"127.0.0.1", "127.0.0.2", "127.1.2.3", "::1"} {
		client := proxytest.DialUDP(t, netip.AddrPortFrom(netip.MustParseAddr(ip), port)) // hears only that address
		for range 3 {
			client.Ask(t)
		}
	}
}

// The same client port may speak to several addresses of the node.
func (s suite) TestOneClientMaySpeakToSeveralAddresses(t *testing.T) {
	proxytest.NeedsAddresses(t, "127.0.0.2")
	cfg := s.config()
	cfg.BindAddress = netip.IPv4Unspecified()
	n := newNode(t, cfg)
	port := udpThrough(t, n, servedUDP(t, "dns")).Port()
	client := proxytest.NewUDPSocket(t)
	for _, ip := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.1"} {
		to := netip.AddrPortFrom(netip.MustParseAddr(ip), port)
		if from := proxytest.AskFrom(t, client, to); from != to {
			t.Errorf("asked %s and was answered from %s", to, from)
		}
	}
}

func (s suite) TestUDPClientsAreGivenTheEndpointsInTurnAndKeepThem(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	addr := udpThrough(t, n, servedUDP(t, "1"), servedUDP(t, "2"), servedUDP(t, "3"))
	var clients []*proxytest.UDPClient
	var given []proxytest.Answer
	order := ""
	for range 7 {
		client := proxytest.DialUDP(t, addr)
		answer := client.Ask(t)
		clients, given = append(clients, client), append(given, answer)
		order += answer.Name
	}
	if want := "1231231"; order != want {
		t.Errorf("clients were given %s; want %s", order, want)
	}
	for range 3 {
		for i, client := range clients {
			if got := client.Ask(t); got != given[i] {
				t.Errorf("client %d moved from %v to %v", i, given[i], got)
			}
		}
	}
}

// A session begins with a burst: a resolver asks for both families at once, QUIC sends its first
// flight. None of it may be lost to the making of the session.
func (s suite) TestTheFirstDatagramsOfAClientArriveTogether(t *testing.T) {
	const burst = 10
	cfg := s.config()
	n := newNode(t, cfg)
	arrived := make(chan string, burst)
	server := proxytest.ServeUDP(t, "127.0.0.1:0", func(payload []byte, _ netip.AddrPort) []byte {
		arrived <- string(payload)
		return nil
	})
	client := proxytest.DialUDP(t, udpThrough(t, n, server.Addr))
	for i := range burst {
		if _, err := client.Write([]byte{byte('0' + i)}); err != nil {
			t.Fatal(err)
		}
	}
	order := ""
	for range burst {
		order += proxytest.Receive(t, arrived, "ten datagrams; so far "+order)
	}
	if want := "0123456789"; order != want {
		t.Errorf("the endpoint got %s; want %s", order, want)
	}
	if got := server.Sessions(); got != 1 {
		t.Errorf("one client was given %d sessions", got)
	}
}

func (s suite) TestASessionEndsWhenItHasBeenSilent(t *testing.T) {
	cfg := s.config()
	cfg.UDPTimeout = 300 * time.Millisecond
	n := newNode(t, cfg)
	addr := udpThrough(t, n, servedUDP(t, "1"), servedUDP(t, "2"))
	client := proxytest.DialUDP(t, addr)
	mute := proxytest.DialUDP(t, addr) // sends once and never reads
	before := proxytest.Sockets(t)
	first := client.Ask(t)
	mute.Write([]byte("a a a"))
	proxytest.Eventually(t, func() bool { return proxytest.Sockets(t) == before }, "the sessions' sockets closed")
	if again := client.Ask(t); again == first {
		t.Errorf("the session with %v went on after it ended", first)
	}
}

// Silence means that neither side speaks: a client that only listens, as to a stream, keeps its
// session, and so does one that only speaks, as a sensor does.
func (s suite) TestASessionLastsWhileEitherSideSpeaks(t *testing.T) {
	cfg := s.config()
	cfg.UDPTimeout = time.Second
	n := newNode(t, cfg)
	server := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("media"))
	addr := udpThrough(t, n, server.Addr)
	proxytest.Punctually(t, cfg.UDPTimeout/2, func(beat func()) error {
		mute := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
		listener := proxytest.DialUDP(t, addr)
		session := listener.Ask(t).Session
		port := proxytest.FreePort(t)
		n.apply(service("log", udp(port)), endpoints("log", mute.Addr))
		speaker := proxytest.DialUDP(t, proxytest.On(port))
		buf := make([]byte, 100)
		for heard := range 30 { // for more than twice the timeout
			beat()
			if err := server.Send("frame", session); err != nil {
				return err
			}
			listener.SetReadDeadline(time.Now().Add(cfg.UDPTimeout))
			if _, err := listener.Read(buf); err != nil {
				return fmt.Errorf("after %d frames: %w", heard, err)
			}
			if _, err := speaker.Write([]byte("line")); err != nil {
				return err
			}
			time.Sleep(75 * time.Millisecond)
		}
		if got := listener.Ask(t).Session; got != session {
			return fmt.Errorf("the listener's session is %s; was %s", got, session)
		}
		beat()
		proxytest.Eventually(t, func() bool { return mute.Received() == 30 }, "every line logged")
		if got := mute.Sessions(); got != 1 {
			return fmt.Errorf("the speaker was given %d sessions", got)
		}
		return nil
	})
}

// D42: v0.4 left a client with an endpoint that was gone for as long as it went on asking.
func (s suite) TestASessionMovesAtOnceWhenItsEndpointGoes(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	goes, stays := servedUDP(t, "goes"), servedUDP(t, "stays")
	addr := udpThrough(t, n, goes, stays)
	one, two := proxytest.DialUDP(t, addr), proxytest.DialUDP(t, addr)
	if got := one.Ask(t).Name; got != "goes" {
		t.Fatalf("the first client was given the endpoint that %s", got)
	}
	before := two.Ask(t)
	sockets := proxytest.Sockets(t)
	n.apply(endpoints("dns", stays))
	if got := one.Ask(t).Name; got != "stays" { // the very next datagram
		t.Errorf("after its endpoint went, a client is answered by the endpoint that %s", got)
	}
	if after := two.Ask(t); after != before {
		t.Errorf("a session whose endpoint stays moved from %v to %v", before, after)
	}
	for _, totals := range n.Totals() {
		if totals.Service.Name == named("dns") && totals.MovedSessions != 1 {
			t.Errorf("%d sessions were counted as moved; want 1", totals.MovedSessions)
		}
	}
	proxytest.Eventually(t, func() bool { return proxytest.Sockets(t) == sockets }, "as many sockets as sessions")
}

func (s suite) TestASessionMovesWhenItsEndpointRefuses(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	dies := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("dies"))
	addr := udpThrough(t, n, dies.Addr, servedUDP(t, "lives"))
	client := proxytest.DialUDP(t, addr)
	if got := client.Ask(t).Name; got != "dies" {
		t.Fatalf("the first client was given the endpoint that %s", got)
	}
	dies.Close()
	lost := 0
	proxytest.Eventually(t, func() bool {
		answer, err := client.Try(2 * time.Second)
		if err != nil {
			lost++
		}
		return err == nil && answer.Name == "lives"
	}, "an answer from the endpoint that lives")
	if lost > 2 { // the one that was refused, and the one sent before that was known
		t.Errorf("%d datagrams were lost", lost)
	}
	for range 4 { // and newcomers are not sent there, one refusal after another
		if got := proxytest.DialUDP(t, addr).AskOften(t).Name; got != "lives" {
			t.Errorf("a newcomer was answered by the endpoint that %s", got)
		}
	}
}

func (s suite) TestWithoutEndpointsDatagramsAreDropped(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	addr := udpThrough(t, n)
	client := proxytest.DialUDP(t, addr)
	before := proxytest.Sockets(t)
	if !client.Drops() {
		t.Error("without endpoints a datagram was answered or refused")
	}
	if got := proxytest.Sockets(t); got != before {
		t.Errorf("%d sockets more for a client that cannot be served", got-before)
	}
	endpoint := servedUDP(t, "dns")
	before = proxytest.Sockets(t)
	n.apply(endpoints("dns", endpoint))
	if got := client.Ask(t).Name; got != "dns" {
		t.Errorf("answered by %q", got)
	}
	n.apply(endpoints("dns"))
	if !client.Drops() {
		t.Error("a datagram was answered by an endpoint that is gone")
	}
	proxytest.Eventually(t, func() bool { return proxytest.Sockets(t) == before }, "the session's socket closed")
}

// A session belongs to the claim that owned the port when it began.
func (s suite) TestSessionsEndWhenThePortChangesHands(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	p, q := proxytest.FreePort(t), proxytest.FreePort(t)
	n.apply(
		service("a", udp(p)), endpoints("a", servedUDP(t, "a")),
		service("b", udp(q)), endpoints("b", servedUDP(t, "b")))
	one, two := proxytest.DialUDP(t, proxytest.On(p)), proxytest.DialUDP(t, proxytest.On(q))
	want := func(when, first, second string) {
		t.Helper()
		if got := one.Ask(t).Name; got != first {
			t.Errorf("%s: the first port is answered by %q; want %q", when, got, first)
		}
		if got := two.Ask(t).Name; got != second {
			t.Errorf("%s: the second port is answered by %q; want %q", when, got, second)
		}
	}
	want("at first", "a", "b")
	sockets := proxytest.Sockets(t)
	for i := range 50 {
		n.apply(service("a", udp(q)), service("b", udp(p)))
		want(fmt.Sprintf("swapped the %d. time", 2*i+1), "b", "a")
		n.apply(service("a", udp(p)), service("b", udp(q)))
		want(fmt.Sprintf("swapped the %d. time", 2*i+2), "a", "b")
	}
	n.apply(serviceSince("heir", 5, udp(p)), endpoints("heir", servedUDP(t, "heir")))
	want("with an heir in line", "a", "b")
	n.apply(noService("a"))
	want("after the heir took over", "heir", "b")
	proxytest.Eventually(t, func() bool { return proxytest.Sockets(t) == sockets+1 }, // the heir's endpoint
		"no socket left of the sessions that ended")
}

func (s suite) TestSessionsEndWithTheirPort(t *testing.T) { // D43
	cfg := s.config()
	n := newNode(t, cfg)
	server := servedUDP(t, "dns")
	before := proxytest.Sockets(t)
	port := proxytest.FreePort(t)
	n.apply(service("dns", udp(port)), endpoints("dns", server))
	clients := 0
	for range 20 {
		client := proxytest.DialUDP(t, proxytest.On(port))
		client.Ask(t)
		clients++
	}
	n.apply(noService("dns"))
	proxytest.Eventually(t, func() bool { return proxytest.Sockets(t) == before+clients }, "the sessions' sockets closed")
}

// A flood of clients that never come back, as forged addresses look, takes the places of each
// other, and not those of clients that are known because they have gone on after an answer.
func (s suite) TestAFloodDoesNotPushOutKnownClients(t *testing.T) {
	const limit, known, flood = 12, 4, 60
	cfg := s.config()
	cfg.MaxUDPSessionsPerService, cfg.MaxUDPSessions = limit, 4*limit
	n := newNode(t, cfg)
	addr := udpThrough(t, n, servedUDP(t, "1"), servedUDP(t, "2"))
	base := proxytest.Sockets(t)
	var clients []*proxytest.UDPClient
	var sessions []proxytest.Answer
	for range known {
		client := proxytest.DialUDP(t, addr)
		client.Ask(t)
		sessions = append(sessions, client.Ask(t)) // speaking again after an answer makes it known
		clients = append(clients, client)
	}
	for range flood {
		proxytest.DialUDP(t, addr).Ask(t) // every stranger is served, at the cost of the oldest of its kind
	}
	newcomer := proxytest.DialUDP(t, addr)
	had := newcomer.Ask(t)
	for range 3 {
		proxytest.DialUDP(t, addr).Ask(t)
	}
	if got := newcomer.Ask(t); got != had { // many were older
		t.Errorf("a newcomer that soon came back had %v and now has %v", had, got)
	}
	for i, client := range clients {
		if got := client.Ask(t); got != sessions[i] {
			t.Errorf("known client %d had %v and now has %v", i, sessions[i], got)
		}
	}
	proxytest.Eventually(t, func() bool { return proxytest.Sockets(t)-base <= known+flood+4+limit }, "no more than %d sessions", limit)
}

func (s suite) TestWhenAllSessionsAreInUseThoseWhoHaveThemKeepThem(t *testing.T) {
	const limit = 4
	cfg := s.config()
	cfg.MaxUDPSessionsPerService = limit
	n := newNode(t, cfg)
	addr := udpThrough(t, n, servedUDP(t, "1"), servedUDP(t, "2"))
	var clients []*proxytest.UDPClient
	var sessions []proxytest.Answer
	for range limit {
		client := proxytest.DialUDP(t, addr)
		client.Ask(t)
		clients, sessions = append(clients, client), append(sessions, client.Ask(t))
	}
	for range 3 * limit {
		proxytest.DialUDP(t, addr).Write([]byte("no room"))
	}
	for range 2 {
		for i, client := range clients {
			if got := client.Ask(t); got != sessions[i] {
				t.Errorf("client %d had %v and now has %v", i, sessions[i], got)
			}
		}
	}
}

func (s suite) TestAFloodOfOneServiceLeavesTheOthersTheirs(t *testing.T) {
	const limit = 8
	cfg := s.config()
	cfg.MaxUDPSessionsPerService, cfg.MaxUDPSessions = limit, limit+2
	n := newNode(t, cfg)
	flooded := udpThrough(t, n, servedUDP(t, "flooded"))
	quiet := proxytest.On(proxytest.FreePort(t))
	n.apply(service("quiet", udp(quiet.Port())), endpoints("quiet", servedUDP(t, "quiet")))
	client := proxytest.DialUDP(t, quiet)
	client.Ask(t)
	had := client.Ask(t)
	for range 5 * limit {
		proxytest.DialUDP(t, flooded).Ask(t)
	}
	if got := client.Ask(t); got != had {
		t.Errorf("the client of another service had %v and now has %v", had, got)
	}
	if got := proxytest.DialUDP(t, quiet).Ask(t).Name; got != "quiet" {
		t.Errorf("a newcomer to another service was answered by %q", got)
	}
}

func (s suite) TestUDPEndpointsMayBeOnIPv6(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	addr := udpThrough(t, n, proxytest.ServeUDP(t, "[::1]:0", proxytest.EchoUDP).Addr)
	sent := bytes.Repeat([]byte("6"), proxytest.MaxDatagram)
	if got, err := proxytest.DialUDP(t, addr).Exchange(sent); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("sent %d bytes, got %d, %v", len(sent), len(got), err)
	}
}

func (s suite) TestOneClientHasASessionWithEachService(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	client := proxytest.NewUDPSocket(t)
	var ports []netip.AddrPort
	for _, name := range []string{"a", "b"} {
		port := proxytest.FreePort(t)
		n.apply(
			service(name, registry.Port{Protocol: registry.UDP, Number: port}),
			endpoints(name, servedUDP(t, name)))
		ports = append(ports, proxytest.On(port))
	}
	for range 2 {
		for _, to := range ports {
			if from := proxytest.AskFrom(t, client, to); from != to {
				t.Errorf("asked %s and was answered from %s", to, from)
			}
		}
	}
}
