package conformancetest

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/proxy"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// What an operator sets: how many there may be, which ports, which endpoints, which clients.

func (s suite) TestTheLimitOfOneServiceLeavesTheOthersTheirRoom(t *testing.T) {
	cfg := s.config()
	cfg.MaxConnections, cfg.MaxConnectionsPerService = 5, 3
	n := newNode(t, cfg)
	web := tcpThrough(t, n, served(t, proxytest.Chat("web")))
	other := proxytest.On(proxytest.FreePort(t))
	n.apply(service("other", tcp(other.Port())), endpoints("other", served(t, proxytest.Chat("other"))))
	first, second := fits(t, web), fits(t, other)
	if len(first) != 3 || len(second) != 2 {
		t.Errorf("%d clients of one service and %d of another were let in; want 3 and 2", len(first), len(second))
	}
	wantLimit(t, n, traffic.Limit{Name: "connections", Used: 5, Max: 5})
	first[0].Conn.Close()
	proxytest.Eventually(t, func() bool { return len(fits(t, other)) == 1 }, "room in another service for who left one")
	for _, talk := range append(first[1:], second...) {
		talk.MustSay(t, "still here")
	}
}

// A service alone has nearly all connections of the node. When another one wants some, connections that end go over to it until both have the
// same, and none is cut for that.
func (s suite) TestServicesShareTheConnectionsOfTheNodeFairly(t *testing.T) {
	const most, free = 100, 95
	cfg := s.config()
	cfg.MaxConnections, cfg.WaitAtLimit = most, time.Millisecond
	n := newNode(t, cfg)
	web := tcpThrough(t, n, served(t, proxytest.Chat("web")))
	other := proxytest.On(proxytest.FreePort(t))
	n.apply(service("other", tcp(other.Port())), endpoints("other", served(t, proxytest.Chat("other"))))
	first := fits(t, web)
	if len(first) < free {
		t.Fatalf("a service alone was given %d of %d connections; want %d", len(first), most, free)
	}
	second := fits(t, other)
	if len(second) != most-len(first) {
		t.Fatalf("beside %d connections, another service was given %d of %d", len(first), len(second), most)
	}
	for len(second) < free/2 {
		first[0].Conn.Close()
		first = first[1:]
		ended := func() {
			proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Active == int64(len(first)) }, "the end of a connection")
		}
		ended()
		proxytest.Eventually(t, func() bool { // the counts of all services may be as old as fifty looks take
			talk, err := talkTo(t, web)
			if talk != nil {
				talk.Conn.Close()
				ended()
			}
			return err != nil
		}, "with %d connections a service is given no more, since another has %d", len(first), len(second))
		talk, err := talkTo(t, other)
		if err != nil {
			t.Fatalf("with %d connections a service was refused, though another has %d: %v", len(second), len(first), err)
		}
		second = append(second, talk)
	}
	for _, talk := range append(first, second...) {
		talk.MustSay(t, "still here")
	}
}

// As many threads as the limit allows, each of which closes a connection and opens the next at once: the next one comes before the proxy has
// read the end of the one before it. None of them exceeds the limit.
func (s suite) TestClientsOneAfterAnotherOnALimitAreNeverRefused(t *testing.T) {
	const threads, rounds = 4, 100
	for _, limit := range []struct {
		name string
		set  func(*proxy.Config)
	}{
		{"of the service", func(cfg *proxy.Config) { cfg.MaxConnectionsPerService = threads }},
		{"of the node", func(cfg *proxy.Config) { cfg.MaxConnections, cfg.MaxConnectionsPerService = threads, threads }},
	} {
		t.Run(limit.name, func(t *testing.T) {
			cfg := s.config()
			limit.set(&cfg)
			cfg.WaitAtLimit = proxytest.Patience
			addr := tcpThrough(t, newNode(t, cfg), served(t, proxytest.Chat("web")))
			var all sync.WaitGroup
			var refused atomic.Int64
			for range threads {
				all.Go(func() {
					for range rounds {
						talk, err := talkTo(t, addr)
						if err != nil {
							refused.Add(1)
							continue
						}
						talk.Conn.Close()
					}
				})
			}
			all.Wait()
			if n := refused.Load(); n != 0 {
				t.Errorf("%d of %d clients were refused", n, threads*rounds)
			}
		})
	}
}

// The time for which a client waits at a limit begins when it comes. It comes here when the limit has been full for longer than that, which the first
// client has reached and nobody has waited at.
func (s suite) TestAClientAtALimitThatHasLongBeenFullWaitsForItsTurn(t *testing.T) {
	cfg := s.config()
	cfg.MaxConnectionsPerService, cfg.WaitAtLimit = 1, 5*time.Second // longer than a machine with much to do may keep the end of the first one back
	addr := tcpThrough(t, newNode(t, cfg), served(t, proxytest.Chat("web")))
	first := proxytest.TalkTo(t, addr)
	first.MustSay(t, "hello")
	time.Sleep(cfg.WaitAtLimit)
	second := proxytest.TalkTo(t, addr)
	first.MustSay(t, "still here") // and the proxy has seen the second one meanwhile
	first.Conn.Close()
	if _, err := second.Say("hello"); err != nil {
		t.Errorf("a client that came just before the end of another one was not served: %v", err)
	}
}

// Clients beyond a limit are refused, however many come: those that are served notice nothing, and who comes when one of them has gone is served.
func (s suite) TestAFloodBeyondALimitIsRefused(t *testing.T) {
	const many = 300
	cfg := s.config()
	cfg.MaxConnectionsPerService = 2
	n := newNode(t, cfg)
	addr := tcpThrough(t, n, served(t, proxytest.Chat("web")))
	first, second := proxytest.TalkTo(t, addr), proxytest.TalkTo(t, addr)
	first.MustSay(t, "hello")
	second.MustSay(t, "hello")
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			if _, err := talkTo(t, addr); err == nil {
				t.Error("a client beyond the limit was served")
			}
		})
	}
	all.Wait()
	second.MustSay(t, "still here")
	if got := totalsOf(n, "web").Ended[traffic.ServiceLimit]; got != many {
		t.Errorf("%d clients were refused for the limit; want %d", got, many)
	}
	first.Conn.Close()
	proxytest.Eventually(t, func() bool { _, err := talkTo(t, addr); return err == nil }, "room for a client after the flood")
}

func wantLimit(t *testing.T, n *node, want traffic.Limit) {
	t.Helper()
	for _, got := range n.Limits() {
		if got == want {
			return
		}
	}
	t.Errorf("limits %+v; want %+v among them", n.Limits(), want)
}

// TestAnEndpointWithTooManyDialsIsPassedOverAndNotBlamed: an endpoint that is slow to answer costs the clients that dial it, and of those there
// are only so many. What is seen after a silence of engine.Stagger says nothing: by then they are given another endpoint, and it may be blamed.
func (s suite) TestAnEndpointWithTooManyDialsIsPassedOverAndNotBlamed(t *testing.T) {
	for range 20 {
		waiting, slow, took := s.clientsOfASlowEndpoint(t)
		if took >= engine.Stagger {
			continue
		}
		if waiting != 2 {
			t.Errorf("%d clients wait for the endpoint that is slow; want 2", waiting)
		}
		if slow.Failures != 0 || !slow.EjectedUntil.IsZero() {
			t.Errorf("an endpoint that has not answered yet is blamed: %+v", slow)
		}
		return
	}
	t.Errorf("the machine is too busy: 20 times, %d clients took longer than %v", clientsOfSlow, engine.Stagger)
}

// clientsOfSlow are more than may dial the slow endpoint, twice over.
const clientsOfSlow = 8

// clientsOfASlowEndpoint has clients come to a service that has a slow endpoint and a quick one, and returns how many wait, what is known
// of the slow one, and how long it took.
func (s suite) clientsOfASlowEndpoint(t *testing.T) (waiting int, slow rotation.EndpointStatus, took time.Duration) {
	cfg := s.config()
	cfg.MaxDialsPerEndpoint = 2
	cfg.DialTimeout, cfg.DialTotalTimeout = proxytest.Patience, 2*proxytest.Patience
	n := newNode(t, cfg)
	defer n.end()
	silent := proxytest.BlackHole(t)
	addr := tcpThrough(t, n, silent, served(t, proxytest.Identify("quick")))
	began := time.Now()
	for i := range uint64(clientsOfSlow) {
		client := proxytest.Dial(t, addr)
		go func() {
			proxytest.Discard(client)
			client.Close()
		}()
		proxytest.Eventually(t, func() bool {
			now := totalsOf(n, "web")
			return now.Active <= 2 && uint64(now.Active)+now.Ended[traffic.EndpointFinished] == i+1
		}, "client %d to be answered, unless it is one of two that wait", i)
	}
	status := n.balancer.Status()
	of := slices.IndexFunc(status, func(e rotation.EndpointStatus) bool { return e.Addr == silent })
	return int(totalsOf(n, "web").Active), status[of], time.Since(began)
}

// Every port that a service asks for in vain is told of, and the others of the same service work.
func (s suite) TestPortsThatNoServiceMayHaveAreNotClaimed(t *testing.T) {
	cfg := s.config()
	allowed, operators, forbidden := proxytest.FreePort(t), proxytest.FreePort(t), proxytest.FreePort(t)
	cfg.AllowedPorts = []proxy.PortRange{{First: allowed, Last: allowed}, {First: operators, Last: operators}}
	cfg.ReservedPorts = []uint16{operators}
	n := newNode(t, cfg)
	web, dns := served(t, proxytest.Identify("web")), servedUDP(t, "dns")
	n.tell(
		service("web", tcp(allowed), tcp(operators), tcp(forbidden), udp(operators), udp(forbidden)), endpoints("web", web),
		service("greedy", tcp(operators)))
	if got := proxytest.WhoAnswers(t, proxytest.On(allowed)); got != "web" {
		t.Errorf("the port that is allowed is answered by %q", got)
	}
	for _, port := range []uint16{operators, forbidden} {
		if proxytest.Listens(proxytest.On(port)) {
			t.Errorf("tcp port %d is served", port)
		}
	}
	n.tell(endpoints("web", dns))
	if got := proxytest.DialUDP(t, proxytest.On(operators)).AskOften(t).Name; got != "dns" {
		t.Errorf("the number of the operators' port over udp is answered by %q", got)
	}
	if !proxytest.RefusesUDP(t, proxytest.On(forbidden)) {
		t.Errorf("udp port %d is served", forbidden)
	}
	wantRefused := func(refused map[uint16]string) {
		t.Helper()
		for _, s := range n.Status() {
			if s.ID.Protocol != registry.TCP {
				continue
			}
			want := refused[s.ID.Number]
			if s.Refused != (want != "") || s.Refused != (s.Err != nil) || s.Refused && !strings.Contains(s.Err.Error(), want) {
				t.Errorf("port %d: refused %v, %v; want %s", s.ID.Number, s.Refused, s.Err, want)
			}
			if s.Refused && (s.Owner != registry.PortKey{} || len(s.Waiting) == 0) {
				t.Errorf("port %d belongs to %v, and %v ask for it", s.ID.Number, s.Owner, s.Waiting)
			}
			delete(refused, s.ID.Number)
		}
		for port := range refused {
			t.Errorf("port %d is not told of", port)
		}
	}
	wantRefused(map[uint16]string{operators: "operators", forbidden: "-allowed_ports"})
	n.tell(noService("greedy"), service("web", tcp(allowed), tcp(operators)))
	wantRefused(map[uint16]string{operators: "operators"})
	n.tell(noService("web"))
	if got := n.Status(); len(got) != 0 {
		t.Errorf("when nobody asks for a port any more, there is %+v", got)
	}
}

// Which address an endpoint has is known for certain only when its name has been looked up.
func (s suite) TestEndpointsElsewhereAreNotUsedHoweverTheyAreSpelled(t *testing.T) {
	proxytest.NeedsAddresses(t, "127.0.0.2")
	cfg := s.config()
	cfg.AllowedEndpoints = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32"), netip.MustParsePrefix("10.0.0.0/8")}
	n := newNode(t, cfg)
	elsewhere := served(t, proxytest.Identify("elsewhere"))
	here := proxytest.ServeTCP(t, "127.0.0.2:0", proxytest.Identify("here")).Addr
	addr := tcpThrough(t, n, elsewhere, here, host("localhost", elsewhere.IP.Port()))
	for range 6 {
		if got := proxytest.WhoAnswers(t, addr); got != "here" {
			t.Errorf("answered by %q", got)
		}
	}
	udpAddr := udpThrough(t, n, servedUDP(t, "elsewhere"), proxytest.ServeUDP(t, "127.0.0.2:0", proxytest.IdentifyUDP("here")).Addr)
	for range 4 {
		if got := proxytest.DialUDP(t, udpAddr).AskOften(t).Name; got != "here" {
			t.Errorf("over udp answered by %q", got)
		}
	}
	for _, e := range n.balancer.Status() {
		if e.Failures != 0 {
			t.Errorf("an endpoint is blamed for where it is: %+v", e)
		}
	}
}

// Who may connect can change at any time: for those who may before and after, nothing happens.
func (s suite) TestAChangeOfWhoMayConnectDoesNotBlink(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	addr := tcpThrough(t, n, served(t, proxytest.Identify("web")))
	refused := hammer(t, addr, func() {
		for i := range 50 {
			ranges := [][]string{{"0.0.0.0/1"}, {"192.0.2.0/24", "0.0.0.0/2", "64.0.0.0/2"}, {}}[i%3] // also of clients on another machine
			n.apply(from("web", addr.Port(), ranges...))
		}
	})
	if refused != 0 {
		t.Errorf("%d clients that may connect were refused", refused)
	}
	n.apply(from("web", addr.Port(), "127.0.0.2/32"))
	refuses(t, addr)
	n.apply(service("web", tcp(addr.Port())))
	if got := proxytest.WhoAnswers(t, addr); got != "web" {
		t.Errorf("when anybody may connect again, answered by %q", got)
	}
	if ended := totalsOf(n, "web").Ended; ended[traffic.SourceNotAllowed] != 1 {
		t.Errorf("%d clients are counted that were not allowed; want 1", ended[traffic.SourceNotAllowed])
	}
}

func (s suite) TestAServiceOfBothFamiliesKnowsAClientByItsOwnAddress(t *testing.T) {
	cfg := s.config()
	cfg.BindAddress = netip.IPv4Unspecified() // both: a client over IPv4 has an address of IPv6 there
	n := newNode(t, cfg)
	addr := tcpThrough(t, n, served(t, proxytest.Identify("web")))
	v6 := netip.AddrPortFrom(netip.IPv6Loopback(), addr.Port())
	n.apply(from("web", addr.Port(), "127.0.0.1/32"))
	if got := proxytest.WhoAnswers(t, addr); got != "web" {
		t.Errorf("the client that may connect is answered by %q", got)
	}
	refuses(t, v6)
	n.apply(from("web", addr.Port(), "::1/128"))
	if got := proxytest.WhoAnswers(t, v6); got != "web" {
		t.Errorf("the client over IPv6 that may connect is answered by %q", got)
	}
	refuses(t, addr)
}

// The status of an endpoint follows its connections.
func (s suite) TestStatusTellsWhatEachEndpointDoes(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	web, refusing := served(t, proxytest.Chat("web")), proxytest.Refusing(t)
	addr := tcpThrough(t, n, refusing, web)
	stays := proxytest.TalkTo(t, addr)
	stays.MustSay(t, "hello")
	for range 2 {
		talk := proxytest.TalkTo(t, addr)
		talk.MustSay(t, "hello")
		talk.Conn.Close()
	}
	want := func(e rotation.EndpointStatus) bool {
		switch e.Addr {
		case web:
			return e.Active == 1 && e.Connections == 3 && e.Failures == 0 && e.EjectedUntil.IsZero()
		case refusing:
			return e.Active == 0 && e.Connections == 0 && e.Failures > 0 && time.Now().Before(e.EjectedUntil)
		}
		return false
	}
	proxytest.Eventually(t, func() bool {
		status := n.balancer.Status()
		return len(status) == 2 && status[0].Addr == refusing && want(status[1]) && (want(status[0]) || status[0].EjectedUntil.IsZero())
	}, "one connection of three to be active")
	if got := totalsOf(n, "web"); got.DialFailures == 0 || got.Active != 1 {
		t.Errorf("the service has %d failures and %d connections", got.DialFailures, got.Active)
	}
}
