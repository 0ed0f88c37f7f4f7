package conformancetest

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// What the record of a service says of its clients comes before the flag of the node, and touches no other service.

// asking says that a service has ports and terms.
func asking(name string, terms registry.Terms, ports ...registry.Port) change {
	return func(b *registry.Batch) {
		service(name, ports...)(b)
		b.Services[named(name)].SetTerms(terms)
	}
}

// fits counts the clients that a service lets in, one after the other, which all stay.
func fits(t *testing.T, at netip.AddrPort) (talks []*proxytest.Talk) {
	t.Helper()
	for {
		talk, err := talkTo(t, at)
		if err != nil {
			return talks
		}
		talks = append(talks, talk)
	}
}

func (s suite) TestARecordLimitsTheConnectionsOfItsServiceAlone(t *testing.T) {
	cfg := s.config()
	cfg.MaxConnectionsPerService = 3
	n := newNode(t, cfg)
	chat := served(t, proxytest.Chat("web"))
	at, other := proxytest.On(proxytest.FreePort(t)), proxytest.On(proxytest.FreePort(t))
	limited := func(most int) change {
		return asking("web", registry.Terms{Limits: registry.Limits{Connections: most}}, tcp(at.Port()))
	}
	n.apply(limited(2), endpoints("web", chat), service("other", tcp(other.Port())), endpoints("other", chat))
	first, second := fits(t, at), fits(t, other)
	if len(first) != 2 || len(second) != 3 {
		t.Fatalf("%d clients of the service with a limit of 2 were let in, and %d of the one without", len(first), len(second))
	}
	n.apply(limited(4)) // more than the flag says
	if more := fits(t, at); len(more) != 2 {
		t.Errorf("%d more clients were let in when the limit became 4", len(more))
	}
	n.apply(limited(1))
	refuses(t, at)
	for _, talk := range append(first, second...) {
		talk.MustSay(t, "still here")
	}
	proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Ended[traffic.ServiceLimit] == 3 }, "three clients to be refused for the limit of the service")
}

func (s suite) TestARecordLimitsTheConnectionsOfEachClient(t *testing.T) {
	proxytest.NeedsAddresses(t, "127.0.0.2")
	elsewhere := netip.MustParseAddr("127.0.0.2")
	n := newNode(t, s.config())
	at := proxytest.On(proxytest.FreePort(t))
	limited := func(each int) change {
		return asking("web", registry.Terms{Limits: registry.Limits{PerClient: each}}, tcp(at.Port()))
	}
	n.apply(limited(2), endpoints("web", served(t, proxytest.Chat("web"))))
	first := fits(t, at)
	if len(first) != 2 {
		t.Fatalf("a client was given %d connections; want 2", len(first))
	}
	conn, err := (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(elsewhere, 0))}).Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintln(conn, "hello")
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "web: hello\n" {
		t.Errorf("a client from another address is answered %q, %v", line, err)
	}
	first[0].Conn.Close()
	proxytest.Eventually(t, func() bool { return len(fits(t, at)) == 1 }, "room for a client that closed a connection")
	n.apply(limited(registry.NoLimit))
	if _, err := talkTo(t, at); err != nil {
		t.Errorf("without the limit: %v", err)
	}
	first[1].MustSay(t, "still here")
	proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Ended[traffic.ClientLimit] > 0 }, "a client to be refused for that limit")
}

func (s suite) TestARecordLimitsTheSessionsOfAServiceAndOfEachClient(t *testing.T) {
	proxytest.NeedsAddresses(t, "127.0.0.2")
	elsewhere := netip.MustParseAddr("127.0.0.2")
	n := newNode(t, s.config())
	at := proxytest.On(proxytest.FreePort(t))
	n.apply(asking("dns", registry.Terms{Limits: registry.Limits{Connections: 2, PerClient: 1}}, udp(at.Port())), endpoints("dns", servedUDP(t, "dns")))
	known := func(from netip.Addr) *proxytest.UDPClient {
		c := proxytest.DialUDPFrom(t, from, at)
		first := c.AskOften(t)
		if again := c.AskOften(t); again != first { // so it is not evicted for another
			t.Errorf("a client has %v, and then %v", first, again)
		}
		return c
	}
	here := known(proxytest.Loopback)
	if !proxytest.DialUDP(t, at).Drops() {
		t.Error("a second session of one client was let in")
	}
	other := known(elsewhere)
	if got := totalsOf(n, "dns"); got.Dropped[traffic.DropClientLimit] == 0 || got.Dropped[traffic.DropServiceLimit] != 0 || got.Active != 2 {
		t.Errorf("two clients have %d sessions; dropped %v", got.Active, got.Dropped)
	}
	n.apply(asking("dns", registry.Terms{Limits: registry.Limits{Connections: 2}}, udp(at.Port())))
	if !proxytest.DialUDP(t, at).Drops() {
		t.Error("a third session of the service was let in")
	}
	if got := totalsOf(n, "dns"); got.Dropped[traffic.DropServiceLimit] == 0 {
		t.Errorf("dropped %v; want some for the limit of the service", got.Dropped)
	}
	here.AskOften(t)
	other.AskOften(t)
}

func (s suite) TestARecordSaysHowLongAnEndpointMayTakeToAccept(t *testing.T) {
	cfg := s.config()
	cfg.DialTimeout, cfg.DialTotalTimeout = proxytest.Patience, proxytest.Patience
	n := newNode(t, cfg)
	at := proxytest.On(proxytest.FreePort(t))
	n.apply(asking("web", registry.Terms{Timeouts: registry.Timeouts{Connect: 200 * time.Millisecond}}, tcp(at.Port())), endpoints("web", proxytest.BlackHole(t)))
	refuses(t, at) // which waits for less than the flag says
	proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Ended[traffic.DialFailed] == 1 }, "a client to end for an endpoint that did not accept")
}

func (s suite) TestARecordEndsConnectionsThatAreSilent(t *testing.T) {
	cfg := s.config()
	cfg.IdleTimeout = time.Second
	var ends ended
	cfg.Ended = ends.note
	n := newNode(t, cfg)
	chat := served(t, proxytest.Chat("web"))
	ports := []uint16{proxytest.FreePort(t), proxytest.FreePort(t), proxytest.FreePort(t)}
	idle := func(d time.Duration) registry.Terms { return registry.Terms{Timeouts: registry.Timeouts{Idle: d}} }
	n.apply(asking("web", idle(5*time.Second), tcp(ports[0])), endpoints("web", chat), // longer than the flag
		asking("patient", idle(registry.NoLimit), tcp(ports[1])), endpoints("patient", chat),
		service("plain", tcp(ports[2])), endpoints("plain", chat))
	var talks []*proxytest.Talk
	for _, port := range ports {
		talk := proxytest.TalkTo(t, proxytest.On(port))
		talk.MustSay(t, "hello")
		talks = append(talks, talk)
	}
	speaks := proxytest.TalkTo(t, proxytest.On(ports[0]))
	silent := make(chan error, 2)
	for _, i := range []int{0, 2} {
		go func() { silent <- proxytest.Discard(talks[i].Conn) }()
	}
	for left := 2; left > 0; {
		select {
		case err := <-silent:
			if left--; !proxytest.IsReset(err) {
				t.Errorf("a silent client saw %v; want a reset", err)
			}
		case <-time.After(100 * time.Millisecond):
			speaks.MustSay(t, "hello")
		}
	}
	speaks.MustSay(t, "still here")
	talks[1].MustSay(t, "still here")
	for _, e := range ends.of(t, registry.TCP, 2) {
		least := time.Second
		if e.Service.Name == named("web") {
			least = 5 * time.Second
		}
		if e.Reason != traffic.Idle || e.Duration < least {
			t.Errorf("ended after %v of %v: %+v", e.Duration, least, e)
		}
	}
}

func (s suite) TestARecordSaysHowLongASessionMayBeSilent(t *testing.T) {
	n := newNode(t, s.config())
	at, other := proxytest.On(proxytest.FreePort(t)), proxytest.On(proxytest.FreePort(t))
	web := servedUDP(t, "web")
	n.apply(service("dns", udp(at.Port())), endpoints("dns", web), service("other", udp(other.Port())), endpoints("other", web))
	client, stays := proxytest.DialUDP(t, at), proxytest.DialUDP(t, other)
	client.Ask(t)
	before := stays.Ask(t)
	n.apply(asking("dns", registry.Terms{Timeouts: registry.Timeouts{UDP: 100 * time.Millisecond}}, udp(at.Port())))
	idle := func() uint64 { return totalsOf(n, "dns").Ended[traffic.Idle] }
	proxytest.Eventually(t, func() bool { return idle() == 1 }, "the session to end that began before the change")
	client.Ask(t)
	proxytest.Eventually(t, func() bool { return idle() == 2 }, "the session to end that began after it")
	if again := stays.Ask(t); again != before {
		t.Errorf("the session of another service became %v", again)
	}
}

func (s suite) TestARecordSaysWhatBecomesOfConnectionsAtARemoval(t *testing.T) {
	closes, drains := registry.Removal{Rule: registry.RemovalClose}, registry.Removal{Rule: registry.RemovalDrain}
	for _, r := range removals {
		t.Run(r.how, func(t *testing.T) {
			for _, then := range []registry.Removal{closes, drains} {
				cfg := s.config()
				cfg.OnRemoval.Close = then == drains // the record comes first
				n := newNode(t, cfg)
				was, other := served(t, proxytest.Chat("was")), served(t, proxytest.Chat("other"))
				at := proxytest.On(proxytest.FreePort(t))
				n.apply(asking("web", registry.Terms{Removal: then}, tcp(at.Port())), endpoints("web", was))
				talk := proxytest.TalkTo(t, at)
				talk.MustSay(t, "hello")
				r.do(n, at.Port(), was, other)
				if then == drains {
					talk.MustSay(t, "still here")
				} else if err := proxytest.Discard(talk.Conn); !proxytest.IsReset(err) {
					t.Errorf("the client saw %v; want a reset", err)
				}
				talk.Conn.Close()
				n.end()
			}
		})
	}
}

// A session ends when it has the replies that were expected, and one datagram too many begins another session, with the next endpoint.
func (s suite) TestARecordCountsTheRequestsAndRepliesOfASession(t *testing.T) {
	n := newNode(t, s.config())
	at := proxytest.On(proxytest.FreePort(t))
	counted := func(l registry.Limits) change { return asking("dns", registry.Terms{Limits: l}, udp(at.Port())) }
	n.apply(counted(registry.Limits{Requests: 2}), endpoints("dns", servedUDP(t, "a"), servedUDP(t, "b")))
	client := proxytest.DialUDP(t, at)
	var names string
	for range 6 {
		names += client.Ask(t).Name
	}
	if names != "aabbaa" && names != "bbaabb" {
		t.Errorf("with two datagrams in a session the endpoints are %s", names)
	}
	if got := totalsOf(n, "dns"); got.Active != 3 || got.Begun != 3 {
		t.Errorf("six datagrams, two in each session, made %d sessions, of which %d go on", got.Begun, got.Active)
	}
	n.apply(counted(registry.Limits{Replies: 2}), endpoints("dns", proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP).Addr))
	proxytest.Eventually(t, func() bool { return totalsOf(n, "dns").Active <= 3 }, "the sessions of before")
	other := proxytest.DialUDP(t, at)
	if _, err := other.Exchange([]byte("one of two replies")); err != nil {
		t.Fatal(err)
	}
	before := totalsOf(n, "dns")
	if before.Ended[traffic.Answered] != 0 {
		t.Error("a session ended with one of two replies")
	}
	n.apply(counted(registry.Limits{Replies: 1}))
	for range 3 {
		if _, err := proxytest.DialUDP(t, at).Exchange([]byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	proxytest.Eventually(t, func() bool { return totalsOf(n, "dns").Ended[traffic.Answered] == 3 }, "three sessions to end that have their reply")
}
