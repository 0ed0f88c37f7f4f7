package conformancetest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// What operators see of clients while these go on, and how they end them.

// clients lists those that are selected.
func (n *node) clients(t *testing.T, of traffic.Selection, end bool) (all []traffic.Client) {
	t.Helper()
	for some, err := range n.Clients(t.Context(), of, end) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, some...)
	}
	return all
}

// counted waits until the clients have been counted as having received so many bytes: a client may read an answer before the engine counts it.
func (n *node) counted(t *testing.T, received int) {
	t.Helper()
	proxytest.Eventually(t, func() bool {
		sum := 0
		for _, c := range n.clients(t, traffic.Selection{}, false) {
			sum += int(c.Received)
		}
		return sum == received
	}, "all clients together have received %d bytes", received)
}

// kill ends the selected clients, and counts them.
func (n *node) kill(t *testing.T, of traffic.Selection) int {
	t.Helper()
	return len(n.clients(t, of, true))
}

// by selects the client of an address and port.
func by(t *testing.T, client netip.AddrPort) traffic.Selection {
	t.Helper()
	match, err := traffic.ParseClientMatch(client.String())
	if err != nil {
		t.Fatal(err)
	}
	return traffic.Selection{Client: match}
}

// mostOnALoop is more than a loop looks at in one step.
const mostOnALoop = 200

// TestEachClientIsListedOnceAndGoesOn: with its addresses, what it has said, and the states of both sides.
func (s suite) TestEachClientIsListedOnceAndGoesOn(t *testing.T) {
	n := newNode(t, s.config())
	web := served(t, proxytest.Chat("web"))
	at := tcpThrough(t, n, web)
	talks := make(map[netip.AddrPort]*proxytest.Talk)
	for range mostOnALoop {
		talk := proxytest.TalkTo(t, at)
		talk.MustSay(t, "hello")
		talks[talk.Conn.LocalAddr().(*net.TCPAddr).AddrPort()] = talk
	}
	n.counted(t, mostOnALoop*len("web: hello\n"))
	seen := make(map[netip.AddrPort]bool)
	locals := make(map[netip.AddrPort]bool)
	for _, c := range n.clients(t, traffic.Selection{}, false) {
		if talks[c.Client] == nil || seen[c.Client] {
			t.Errorf("%v is listed; known: %t, listed before: %t", c.Client, talks[c.Client] != nil, seen[c.Client])
		}
		seen[c.Client], locals[c.Local] = true, true
		if c.Service.Name != named("web") || c.Listener.Number != at.Port() || c.Endpoint != web || c.Sent != 6 || c.Received != 11 || c.Age <= 0 {
			t.Errorf("%+v", c)
		}
		if c.ClientState != "" && (c.ClientState != "ESTAB" || c.EndpointState != "ESTAB" || c.Idle < 0) {
			t.Errorf("sides %q and %q, idle for %v", c.ClientState, c.EndpointState, c.Idle)
		}
	}
	if len(seen) != mostOnALoop || len(locals) != mostOnALoop {
		t.Errorf("%d clients are listed, with %d addresses towards the endpoint; want %d", len(seen), len(locals), mostOnALoop)
	}
	for _, talk := range talks {
		talk.MustSay(t, "and now?")
	}
}

// TestASessionIsListedWithItsEndpointUntilItEnds, over UDP.
func (s suite) TestASessionIsListedWithItsEndpointUntilItEnds(t *testing.T) {
	n := newNode(t, s.config())
	server := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP)
	at := proxytest.On(proxytest.FreePort(t))
	n.apply(service("web", udp(at.Port())), endpoints("web", server.Addr))
	client := proxytest.DialUDP(t, at)
	if _, err := client.Exchange([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	n.counted(t, len("hello"))
	all := n.clients(t, traffic.Selection{Service: named("web")}, false)
	if len(all) != 1 || all[0].Listener.Protocol != registry.UDP || all[0].Endpoint != server.Addr || all[0].Sent != 5 || all[0].Received != 5 || !all[0].Local.IsValid() {
		t.Fatalf("%+v; want one session with %v", all, server.Addr)
	}
	if n.kill(t, traffic.Selection{Service: named("web")}) != 1 {
		t.Error("the session was not ended")
	}
	proxytest.Eventually(t, func() bool { return len(n.clients(t, traffic.Selection{}, false)) == 0 }, "no session")
	if _, err := client.Exchange([]byte("again")); err != nil {
		t.Errorf("the client cannot begin anew: %v", err)
	}
}

// TestOnlySelectedClientsAreEnded: by their address, their endpoint, or their service.
func (s suite) TestOnlySelectedClientsAreEnded(t *testing.T) {
	n := newNode(t, s.config())
	a, b := served(t, proxytest.Chat("a")), served(t, proxytest.Chat("b"))
	web, db := proxytest.On(proxytest.FreePort(t)), proxytest.On(proxytest.FreePort(t))
	n.apply(service("web", tcp(web.Port())), service("db", tcp(db.Port())), endpoints("web", a, b), endpoints("db", a))
	begin := func(at netip.AddrPort) *proxytest.Talk {
		talk := proxytest.TalkTo(t, at)
		talk.MustSay(t, "hello")
		return talk
	}
	webs := []*proxytest.Talk{begin(web), begin(web), begin(web), begin(web)}
	other := begin(db)
	match := func(text string) registry.AddrMatch {
		m, err := registry.ParseAddrMatch(text)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if got := n.kill(t, traffic.Selection{Service: named("web"), Endpoint: match(b.String())}); got != 2 {
		t.Errorf("%d clients of endpoint b of web were ended; want 2", got)
	}
	gone := 0
	for _, talk := range webs {
		if _, err := talk.Say("still there?"); err != nil {
			gone++
		}
	}
	if gone != 2 {
		t.Errorf("%d clients of web have ended; want 2", gone)
	}
	other.MustSay(t, "still there?")
	if got := n.kill(t, by(t, addressOf(other.Conn.LocalAddr()))); got != 1 {
		t.Errorf("%d clients of one address and port were ended; want 1", got)
	}
	if _, err := io.ReadAll(other.Conn); err == nil {
		t.Error("it ended as if it were over")
	}
	proxytest.Eventually(t, func() bool { return len(n.clients(t, traffic.Selection{}, false)) == 2 }, "two clients are left")
}

// TestAnEndpointHasClientsUntilTheLastHasLeft, also one that no record lists any more.
func (s suite) TestAnEndpointHasClientsUntilTheLastHasLeft(t *testing.T) {
	n := newNode(t, s.config())
	a, b := served(t, proxytest.Chat("a")), served(t, proxytest.Chat("b"))
	at := tcpThrough(t, n, a)
	talk := proxytest.TalkTo(t, at)
	talk.MustSay(t, "hello")
	match, err := registry.ParseAddrMatch(a.String())
	if err != nil {
		t.Fatal(err)
	}
	has := func(want int64) {
		t.Helper()
		if got, err := n.ClientsOf(registry.Name{}, match); err != nil || got != want {
			t.Errorf("%s has %d clients, %v; want %d", a, got, err, want)
		}
	}
	has(1)
	n.apply(endpoints("web", b))
	has(1)
	n.apply(endpoints("web", a, b)) // it is another endpoint of the same address
	has(1)
	second := proxytest.TalkTo(t, at)
	second.MustSay(t, "hello")
	third := proxytest.TalkTo(t, at)
	third.MustSay(t, "hello")
	has(2)
	for i, c := range []*proxytest.Talk{talk, second, third} {
		c.Conn.Close()
		want := fmt.Sprintf("the end of client %d", i)
		proxytest.Eventually(t, func() bool { return len(n.clients(t, traffic.Selection{}, false)) == 2-i }, "%s", want)
	}
	has(0)
}

// drains is how often an endpoint is drained, replaced and enabled.
const drains = 10

// TestAProgramIsReplacedBehindADrainWithoutAFailedClient: once an endpoint is drained and counts no client, its program can be stopped while
// clients come as fast as they can. So the count never says none while one is there, or on its way.
func (s suite) TestAProgramIsReplacedBehindADrainWithoutAFailedClient(t *testing.T) {
	n := newNode(t, s.config())
	programs := []*proxytest.TCPServer{proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a")), proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("b"))}
	at := tcpThrough(t, n, programs[0].Addr, programs[1].Addr)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for ctx.Err() == nil {
				talk, err := proxytest.TryTalkTo(t, at)
				if err == nil {
					_, err = talk.Say("hello")
					talk.Conn.Close()
				}
				if err != nil {
					t.Errorf("a client failed: %v", err)
					return
				}
			}
		})
	}
	for i := range drains {
		which := i % 2
		addr := programs[which].Addr
		match, err := registry.ParseAddrMatch(addr.String())
		if err != nil {
			t.Fatal(err)
		}
		drain := balance.Override{Service: named("web"), Word: balance.Drain, Began: time.Now(), Until: time.Now().Add(time.Hour)}
		if _, err := n.Override(match, drain, false); err != nil {
			t.Fatal(err)
		}
		zeros := 0
		proxytest.Eventually(t, func() bool {
			left, err := n.ClientsOf(registry.Name{}, match)
			if zeros++; err != nil || left > 0 {
				zeros = 0
			}
			return zeros >= 2
		}, "no client of %s", addr)
		programs[which].Close()
		programs[which] = proxytest.ServeTCP(t, addr.String(), proxytest.Chat("new"))
		if ended, err := n.Enable(named("web"), match); err != nil || len(ended) != 1 {
			t.Fatalf("%d overrides were ended, %v", len(ended), err)
		}
	}
	stop()
	clients.Wait()
}
