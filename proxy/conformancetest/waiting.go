package conformancetest

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// Clients of a service that wants it wait for an endpoint when there is none.

// waiting are the terms of a service whose clients wait.
func waiting(wait time.Duration) registry.Terms {
	return registry.Terms{Timeouts: registry.Timeouts{Wait: wait}}
}

// waitFor waits until clients of a service wait for an endpoint.
func (n *node) waitFor(service string, clients int64) {
	n.t.Helper()
	proxytest.Eventually(n.t, func() bool { return totalsOf(n, service).Active == clients }, "%d clients to wait", clients)
}

func (s suite) TestClientsWaitForAnEndpoint(t *testing.T) {
	n := newNode(t, s.config())
	at, dns := proxytest.On(proxytest.FreePort(t)), proxytest.On(proxytest.FreePort(t))
	n.apply(asking("web", waiting(20*time.Second), tcp(at.Port())), asking("dns", waiting(20*time.Second), udp(dns.Port())))
	talks := []*proxytest.Talk{proxytest.TalkTo(t, at), proxytest.TalkTo(t, at)}
	asker := proxytest.DialUDP(t, dns)
	asker.Write([]byte("a"))
	asker.Write([]byte("b"))
	n.waitFor("web", 2)
	n.waitFor("dns", 1)
	n.apply(endpoints("web", served(t, proxytest.Chat("web"))), endpoints("dns", servedUDP(t, "dns")))
	for _, talk := range talks {
		if who := talk.MustSay(t, "hello"); who != "web" {
			t.Errorf("a client that has waited was given %q", who)
		}
	}
	asker.SetReadDeadline(time.Now().Add(proxytest.Patience))
	for _, sent := range []string{"a", "b"} {
		buf := make([]byte, 100)
		k, err := asker.Read(buf)
		if got := string(buf[:k]); err != nil || !strings.HasPrefix(got, "dns ") || !strings.HasSuffix(got, " "+sent) {
			t.Errorf("the datagram %q, which has waited, was answered by %q, %v", sent, got, err)
		}
	}
}

// TestAClientThatAnElectedEndpointRefusesWaitsForTheNext, or for the same one to be well: who is elected goes down before its key does.
func (s suite) TestAClientThatAnElectedEndpointRefusesWaitsForTheNext(t *testing.T) {
	n := newNode(t, s.config())
	at := proxytest.On(proxytest.FreePort(t))
	terms := waiting(20 * time.Second)
	terms.HolderKey = "/leader"
	down := proxytest.On(proxytest.FreePort(t))
	n.apply(asking("db", terms, tcp(at.Port())), endpoints("db", registry.Addr{IP: down}))
	talk := proxytest.TalkTo(t, at)
	n.waitFor("db", 1)
	isDown := func() bool {
		status := n.balancer.Status()
		return len(status) == 1 && !status[0].FailingSince.IsZero()
	}
	proxytest.Eventually(t, isDown, "the endpoint to refuse the client")
	n.apply(endpoints("db", served(t, proxytest.Chat("next"))))
	if who := talk.MustSay(t, "hello"); who != "next" {
		t.Errorf("a client that the one before has refused was given %q", who)
	}

	n.apply(endpoints("db", registry.Addr{IP: down}))
	talk = proxytest.TalkTo(t, at)
	proxytest.Eventually(t, isDown, "the endpoint to refuse the client")
	proxytest.ServeTCP(t, down.String(), proxytest.Chat("again"))
	proxytest.Eventually(t, func() bool { // the first one to try it after its ejection finds it well
		other, err := proxytest.TryTalkTo(t, at)
		if err != nil {
			return false
		}
		who, err := other.Say("hello")
		return err == nil && who == "again"
	}, "the endpoint to be well for others")
	if who := talk.MustSay(t, "hello"); who != "again" {
		t.Errorf("a client that waited was given %q", who)
	}
}

func (s suite) TestAClientThatAnElectedEndpointRefusedIsServedOnceItIsBackThoughNobodyElseComes(t *testing.T) {
	n := newNode(t, s.config())
	at, down := proxytest.On(proxytest.FreePort(t)), proxytest.On(proxytest.FreePort(t))
	terms := waiting(20 * time.Second)
	terms.HolderKey = "/leader"
	n.apply(asking("db", terms, tcp(at.Port())), endpoints("db", registry.Addr{IP: down}))
	talk := proxytest.TalkTo(t, at)
	isDown := func() bool {
		status := n.balancer.Status()
		return len(status) == 1 && !status[0].FailingSince.IsZero()
	}
	proxytest.Eventually(t, isDown, "the endpoint to refuse the client")
	proxytest.ServeTCP(t, down.String(), proxytest.Chat("back"))
	if who := talk.MustSay(t, "hello"); who != "back" {
		t.Errorf("the client was given %q", who)
	}
}

func (s suite) TestAClientThatWaitsForAnEndpointIsEndedWhenItIsKilled(t *testing.T) {
	n := newNode(t, s.config())
	at := proxytest.On(proxytest.FreePort(t))
	n.apply(asking("web", waiting(time.Hour), tcp(at.Port())))
	talk := proxytest.TalkTo(t, at)
	n.waitFor("web", 1)
	n.killsWhoHasNoEndpoint(t, talk.Conn)
}

// killsWhoHasNoEndpoint ends the only client of the service web, which is not at an endpoint yet.
func (n *node) killsWhoHasNoEndpoint(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	proxytest.Eventually(t, func() bool { return n.kill(t, traffic.Selection{Service: named("web")}) == 1 }, "the client to be listed")
	if err := proxytest.Discard(conn); !proxytest.IsReset(err) {
		t.Errorf("a client that was ended sees %v; want a reset", err)
	}
	proxytest.Eventually(t, func() bool {
		totals := totalsOf(n, "web")
		return totals.Active == 0 && totals.Ended[traffic.Killed] == 1
	}, "the client to be counted as killed")
}

func (s suite) TestAClientThatWaitsIsListedAsWhoItsHeaderNames(t *testing.T) {
	var log ended
	n := s.introducing(t, &log, nil)
	at := proxytest.On(proxytest.FreePort(t))
	n.apply(asking("web", waiting(time.Hour), tcp(at.Port())))
	conn := proxytest.Dial(t, at)
	n.waitFor("web", 1)
	io.WriteString(conn, headerOf(stranger))
	n.killsOnlyAs(t, conn, by(t, addressOf(conn.LocalAddr())), by(t, stranger.Source))
}

func (s suite) TestAClientThatWaitsIsListedUnderTheServiceThatHasThePort(t *testing.T) {
	n := newNode(t, s.config())
	at := proxytest.On(proxytest.FreePort(t))
	n.apply(asking("web", waiting(time.Hour), tcp(at.Port())))
	talk := proxytest.TalkTo(t, at)
	n.waitFor("web", 1)
	n.apply(noService("web"), asking("heir", waiting(time.Hour), tcp(at.Port())))
	n.waitFor("heir", 1)
	n.killsOnlyAs(t, talk.Conn, traffic.Selection{Service: named("web")}, traffic.Selection{Service: named("heir")})
}

// killsOnlyAs ends the only client of the node, which is not at an endpoint yet. A kill of what it was before has to leave it alone.
func (n *node) killsOnlyAs(t *testing.T, conn *net.TCPConn, was, is traffic.Selection) {
	t.Helper()
	proxytest.Eventually(t, func() bool { return len(n.clients(t, is, false)) == 1 }, "the client to be listed as what it is now")
	if got := n.kill(t, was); got != 0 {
		t.Errorf("%d clients were ended as what they were before; want none", got)
	}
	if got := n.kill(t, is); got != 1 {
		t.Errorf("%d clients were ended as what they are now; want 1", got)
	}
	if err := proxytest.Discard(conn); !proxytest.IsReset(err) {
		t.Errorf("a client that was ended sees %v; want a reset", err)
	}
}

func (s suite) TestClientsWaitForAnEndpointAsLongAsTheServiceSays(t *testing.T) {
	n := newNode(t, s.config())
	at, dns := proxytest.On(proxytest.FreePort(t)), proxytest.On(proxytest.FreePort(t))
	const wait = 300 * time.Millisecond
	n.apply(asking("web", waiting(wait), tcp(at.Port())), asking("dns", waiting(wait), udp(dns.Port())))
	began := time.Now()
	proxytest.DialUDP(t, dns).Write([]byte("lost"))
	refuses(t, at)
	if took := time.Since(began); took < wait*3/4 { // a loop looks at the clock once a turn
		t.Errorf("a client was refused after %v; want about %v", took, wait)
	}
	proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Ended[traffic.NoEndpoints] == 1 }, "the client to be counted as refused")
	proxytest.Eventually(t, func() bool { return totalsOf(n, "dns").Dropped[traffic.DropNoEndpoints] == 1 }, "the datagram to be dropped")
}

func (s suite) TestClientsThatWaitAreThoseOfWhoeverHasThePort(t *testing.T) {
	n := newNode(t, s.config())
	at := proxytest.On(proxytest.FreePort(t))
	n.apply(asking("web", waiting(20*time.Second), tcp(at.Port())))
	talk := proxytest.TalkTo(t, at)
	n.waitFor("web", 1)
	n.tell(serviceSince("heir", 2, tcp(at.Port())), endpoints("heir", served(t, proxytest.Chat("heir"))))
	n.apply(noService("web"))
	if who := talk.MustSay(t, "hello"); who != "heir" {
		t.Errorf("the client was given %q", who)
	}

	other := proxytest.On(proxytest.FreePort(t))
	n.apply(asking("other", waiting(20*time.Second), tcp(other.Port())))
	lost := proxytest.TalkTo(t, other)
	n.waitFor("other", 1)
	began := time.Now()
	n.apply(noService("other"))
	if err := proxytest.Discard(lost.Conn); !proxytest.IsReset(err) || time.Since(began) > 10*time.Second {
		t.Errorf("when the service goes its client sees %v after %v; want a reset at once", err, time.Since(began))
	}
}

func (s suite) TestClientsThatWaitDoSoAsLongAsTheirServiceSaysNow(t *testing.T) {
	n := newNode(t, s.config())
	at, dns := proxytest.On(proxytest.FreePort(t)), proxytest.On(proxytest.FreePort(t))
	says := func(wait time.Duration) {
		n.apply(asking("web", waiting(wait), tcp(at.Port())), asking("dns", waiting(wait), udp(dns.Port())))
	}
	says(time.Hour)
	talk := proxytest.TalkTo(t, at)
	proxytest.DialUDP(t, dns).Write([]byte("lost"))
	n.waitFor("web", 1)
	n.waitFor("dns", 1)
	says(time.Millisecond)
	proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Ended[traffic.NoEndpoints] == 1 }, "the client to be refused")
	proxytest.Eventually(t, func() bool { return totalsOf(n, "dns").Dropped[traffic.DropNoEndpoints] == 1 }, "the datagram to be dropped")
	if err := proxytest.Discard(talk.Conn); !proxytest.IsReset(err) {
		t.Errorf("the client sees %v; want a reset", err)
	}
	for _, service := range []string{"web", "dns"} {
		if got := totalsOf(n, service); got.Begun != 1 || got.Active != 0 {
			t.Errorf("of one client of %s, %d were counted, and %d are active", service, got.Begun, got.Active)
		}
	}
}

func (s suite) TestAClientThatWaitsIsServedAtOnceWhenItsPortHasAnotherName(t *testing.T) {
	n := newNode(t, s.config())
	at := proxytest.On(proxytest.FreePort(t))
	port := tcp(at.Port())
	n.apply(asking("web", waiting(time.Hour), port))
	talk := proxytest.TalkTo(t, at)
	n.waitFor("web", 1)
	port.Name = "http"
	n.apply(asking("web", waiting(time.Hour), port), endpointsOf("web", "http", served(t, proxytest.Chat("web"))))
	if who := talk.MustSay(t, "hello"); who != "web" {
		t.Errorf("the client was given %q", who)
	}
}

// TestAClientWhoseServiceChangesWhileItLooksIsCountedOnce: its only endpoint is silent, and is not tried a second time.
func (s suite) TestAClientWhoseServiceChangesWhileItLooksIsCountedOnce(t *testing.T) {
	cfg := s.config()
	cfg.DialTimeout = 2 * time.Second
	var log ended
	cfg.Ended = log.note
	n := newNode(t, cfg)
	at := proxytest.On(proxytest.FreePort(t))
	n.apply(service("web", tcp(at.Port())), endpoints("web", proxytest.BlackHole(t)))
	client := proxytest.Dial(t, at)
	n.waitFor("web", 1)
	n.apply(asking("web", registry.Terms{Timeouts: registry.Timeouts{Idle: time.Hour}}, tcp(at.Port())))
	if err := proxytest.Discard(client); !proxytest.IsReset(err) {
		t.Errorf("the client sees %v; want a reset", err)
	}
	e := log.of(t, registry.TCP, 1)[0]
	if e.Reason != traffic.DialFailed || e.Attempts != 1 {
		t.Errorf("it ended with %s after %d attempts; want dial_failed and 1", e.Reason, e.Attempts)
	}
	if got := totalsOf(n, "web"); got.Begun != 1 || got.DialFailures != 1 {
		t.Errorf("of one client with one attempt, %d and %d were counted", got.Begun, got.DialFailures)
	}
}

func (s suite) TestClientsThatWaitCountForTheLimitOfTheirService(t *testing.T) {
	n := newNode(t, s.config())
	at := proxytest.On(proxytest.FreePort(t))
	terms := waiting(20 * time.Second)
	terms.Limits.Connections = 2
	n.apply(asking("web", terms, tcp(at.Port())))
	for range 2 {
		proxytest.TalkTo(t, at)
	}
	n.waitFor("web", 2)
	refuses(t, at)
	if got := totalsOf(n, "web").Ended[traffic.ServiceLimit]; got != 1 {
		t.Errorf("%d clients were refused for the limit; want 1", got)
	}
}
