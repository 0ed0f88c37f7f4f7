package conformancetest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kubeproxy/proxy"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// Every client that was let in ends once, and for a reason. Here something is done to a client for each
// reason there is, and the books must say that it was this.

// A reasonCase does to a client of the service "web" what a reason says.
type reasonCase struct {
	why    traffic.Reason
	when   string
	config func(*proxy.Config)            // may be nil
	do     func(t *testing.T, b *bookish) // returns when it is done; what it opened stays
}

func (c reasonCase) name() string { return fmt.Sprintf("%s: %s", c.why, c.when) }

// reasonCases has a case for each reason, but for those of linuxReasonCases. Those of UDP are in a table of their own.
var reasonCases = slices.Concat(tcpReasonCases, udpReasonCases)

var tcpReasonCases = []reasonCase{
	{why: traffic.ClientFinished, when: "the client finishes, and is answered", do: func(t *testing.T, b *bookish) {
		client := b.dial(t, func(conn *net.TCPConn) {
			question, _ := io.ReadAll(conn)
			fmt.Fprintf(conn, "you said %s", question)
		})
		io.WriteString(client, "hello")
		client.CloseWrite()
		io.ReadAll(client)
		b.sent, b.received = 5, 14
	}},
	{why: traffic.EndpointFinished, when: "the endpoint finishes, and the client then too", do: func(t *testing.T, b *bookish) {
		client := b.dial(t, proxytest.Identify("web"))
		io.ReadAll(client)
		client.Close()
		b.received = 3
	}},
	{why: traffic.ClientReset, when: "the client resets", do: func(t *testing.T, b *bookish) {
		proxytest.Reset(b.talk(t).Conn)
	}},
	{why: traffic.ClientReset, when: "the client leaves while the endpoint goes on", do: func(t *testing.T, b *bookish) {
		client := b.dial(t, sendForEver)
		client.Read(make([]byte, 1))
		client.Close()
		b.sent, b.received = unknown, unknown
	}},
	{why: traffic.EndpointReset, when: "the endpoint resets", do: func(t *testing.T, b *bookish) {
		client := b.dial(t, afterAByte(proxytest.Reset))
		client.Write([]byte("?"))
		proxytest.Discard(client)
		b.sent = 1
	}},
	{why: traffic.EndpointReset, when: "the endpoint closes with input that it did not read", do: func(t *testing.T, b *bookish) {
		client := b.dial(t, afterAByte(func(conn *net.TCPConn) { io.WriteString(conn, "too large") }))
		go sendForEver(client)
		proxytest.Discard(client)
		b.sent, b.received = unknown, 9
	}},
	{why: traffic.EndpointReset, when: "the endpoint finishes and closes while the client goes on", do: func(t *testing.T, b *bookish) {
		gone := make(chan struct{})
		client := b.dial(t, afterAByte(func(conn *net.TCPConn) {
			io.WriteString(conn, "enough")
			conn.CloseWrite()
			conn.Close()
			close(gone)
		}))
		io.WriteString(client, "hello")
		proxytest.Receive(t, gone, "the endpoint to close")
		io.WriteString(client, "and another thing")
		io.ReadAll(client)
		client.Close()
		b.sent, b.received = 5, 6
	}},
	{why: traffic.EndpointReset, when: "the endpoint finishes and closes, and then the client resets", do: func(t *testing.T, b *bookish) {
		gone := make(chan struct{})
		client := b.dial(t, afterAByte(func(conn *net.TCPConn) {
			conn.CloseWrite()
			conn.Close()
			close(gone)
		}))
		io.WriteString(client, "hello")
		proxytest.Receive(t, gone, "the endpoint to close")
		io.ReadAll(client)
		io.WriteString(client, "and another thing")
		proxytest.Reset(client)
		b.sent = 5
	}},
	{why: traffic.HalfClosedTimeout, when: "the client has finished, and nobody says anything", config: impatient, do: func(t *testing.T, b *bookish) {
		hold := make(chan struct{})
		client := b.dial(t, func(*net.TCPConn) { <-hold })
		t.Cleanup(func() { close(hold) })
		client.CloseWrite()
	}},
	{why: traffic.NoEndpoints, when: "the service has none", do: func(t *testing.T, b *bookish) {
		b.refuses(t)
	}},
	{why: traffic.ZeroWeight, when: "all endpoints have weight 0", do: func(t *testing.T, b *bookish) {
		at, kept := b.serve(t, served(t, proxytest.Identify("web"))), served(t, proxytest.Identify("web"))
		b.apply(weighted("web", "127.0.0.1=0", kept, proxytest.Refusing(t)))
		refuses(t, at)
	}},
	{why: traffic.NoLocalEndpoint, when: "its policy is Local, and no endpoint is on the node", config: onNode, do: func(t *testing.T, b *bookish) {
		at, kept := b.serve(t, served(t, proxytest.Identify("web"))), served(t, proxytest.Identify("web"))
		b.apply(local("web", tcp(at.Port())), endpoints("web", kept))
		refuses(t, at)
	}},
	{why: traffic.DialFailed, when: "each endpoint refuses", do: func(t *testing.T, b *bookish) {
		b.refuses(t, proxytest.Refusing(t), proxytest.Refusing(t))
		b.attempts = 2
	}},
	{why: traffic.DialFailed, when: "the endpoint is silent", config: impatient, do: func(t *testing.T, b *bookish) {
		b.refuses(t, proxytest.BlackHole(t))
		b.attempts = 1
	}},
	{why: traffic.OwnListener, when: "the only endpoint is a port of the proxy", do: func(t *testing.T, b *bookish) {
		port := proxytest.FreePort(t)
		b.apply(service("loop", tcp(port)))
		b.refuses(t, proxytest.At(proxytest.On(port)))
	}},
	{why: traffic.EndpointNotAllowed, when: "the only endpoint lies elsewhere", config: func(cfg *proxy.Config) {
		cfg.AllowedEndpoints = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::/0")}
	}, do: func(t *testing.T, b *bookish) {
		b.refuses(t, served(t, proxytest.Identify("web")))
	}},
	{why: traffic.NameFailed, when: "the name of the only endpoint is none", do: func(t *testing.T, b *bookish) {
		b.refuses(t, host("no..such.name", 80))
	}},
	{why: traffic.DialLimit, when: "another client's dial is under way", config: func(cfg *proxy.Config) {
		cfg.MaxDialsPerEndpoint = 1
	}, do: func(t *testing.T, b *bookish) {
		at := b.serve(t, proxytest.BlackHole(t))
		proxytest.Dial(t, at)
		proxytest.Eventually(t, func() bool { return totalsOf(b.node, "web").Active == 1 }, "the first client")
		refuses(t, at)
	}},
	{why: traffic.SourceNotAllowed, when: "the client comes from elsewhere", do: func(t *testing.T, b *bookish) {
		at := b.serve(t, served(t, proxytest.Identify("web")))
		b.apply(from("web", at.Port(), "127.0.0.2/32", "10.0.0.0/8"))
		refuses(t, at)
	}},
	{why: traffic.ConnectionLimit, when: "there is another client", config: func(cfg *proxy.Config) {
		cfg.MaxConnections = 1
	}, do: func(t *testing.T, b *bookish) {
		b.talk(t)
		refuses(t, b.at)
		b.sent, b.received = 0, 0
	}},
	{why: traffic.ServiceLimit, when: "the service has another client", config: func(cfg *proxy.Config) {
		cfg.MaxConnectionsPerService = 1
	}, do: func(t *testing.T, b *bookish) {
		b.talk(t)
		other := proxytest.FreePort(t)
		b.apply(service("other", tcp(other)), endpoints("other", served(t, proxytest.Identify("other"))))
		refuses(t, b.at)
		if got := proxytest.WhoAnswers(t, proxytest.On(other)); got != "other" {
			t.Errorf("another service is answered by %q", got)
		}
		b.sent, b.received = 0, 0
	}},
	{why: traffic.ClientLimit, when: "it has another connection", config: func(cfg *proxy.Config) {
		cfg.MaxConnectionsPerClient = 1
	}, do: func(t *testing.T, b *bookish) {
		b.talk(t)
		refuses(t, b.at)
		b.sent, b.received = 0, 0
	}},
	{why: traffic.EndpointLimit, when: "its endpoint has another connection", do: func(t *testing.T, b *bookish) {
		b.talk(t)
		b.apply(asking("web", places(1), tcp(b.at.Port())))
		refuses(t, b.at)
		b.sent, b.received = 0, 0
	}},
	{why: traffic.Idle, when: "nobody says anything over TCP", config: func(cfg *proxy.Config) {
		cfg.IdleTimeout = time.Second
	}, do: func(t *testing.T, b *bookish) {
		b.cuts(t, b.talk(t))
	}},
	{why: traffic.NoProxyHeader, when: "a client of another proxy says something else", config: func(cfg *proxy.Config) {
		cfg.ProxyProtocolFrom = loopbackRange
	}, do: func(t *testing.T, b *bookish) {
		client := b.dial(t, proxytest.Chat("web"))
		io.WriteString(client, "GET / HTTP/1.1\r\n\r\n")
		proxytest.Discard(client)
	}},
	{why: traffic.EndpointRemoved, when: "its endpoint goes", config: closing, do: func(t *testing.T, b *bookish) {
		talk := b.talk(t)
		b.apply(endpoints("web", served(t, proxytest.Chat("other"))))
		b.cuts(t, talk)
	}},
	{why: traffic.ServiceRemoved, when: "its service goes", config: closing, do: func(t *testing.T, b *bookish) {
		talk := b.talk(t)
		b.apply(noService("web"))
		b.cuts(t, talk)
	}},
	{why: traffic.ServiceRemoved, when: "its port is another's", config: closing, do: func(t *testing.T, b *bookish) {
		talk := b.talk(t)
		b.apply(serviceSince("heir", 2, tcp(b.at.Port())), service("web", tcp(proxytest.FreePort(t))))
		b.cuts(t, talk)
	}},
	{why: traffic.Killed, when: "an operator ends it", do: func(t *testing.T, b *bookish) {
		talk := b.talk(t)
		if n := b.kill(t, traffic.Selection{Service: named("web")}); n != 1 {
			t.Errorf("%d clients were ended; want 1", n)
		}
		b.cuts(t, talk)
	}},
	{why: traffic.Shutdown, when: "the proxy is stopped", do: func(t *testing.T, b *bookish) {
		talk := b.talk(t)
		b.end()
		b.cuts(t, talk)
	}},
}

// impatient makes the reasons that have to be waited for come soon.
func impatient(cfg *proxy.Config) {
	cfg.DialTimeout = 100 * time.Millisecond
	cfg.HalfClosedTimeout = 100 * time.Millisecond
}

func closing(cfg *proxy.Config) { cfg.OnRemoval.Close = true }

// from says that a service has one TCP port, and who may connect to it.
func from(name string, port uint16, ranges ...string) change {
	return func(b *registry.Batch) {
		service(name, tcp(port))(b)
		var terms registry.Terms
		for _, r := range ranges {
			terms.SourceRanges = append(terms.SourceRanges, netip.MustParsePrefix(r))
		}
		b.Services[named(name)].SetTerms(terms)
	}
}

// sendForEver writes until that fails.
func sendForEver(conn *net.TCPConn) {
	chunk := make([]byte, 64<<10)
	for {
		if _, err := conn.Write(chunk); err != nil {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// refuses checks that a client is turned away by a reset.
func refuses(t *testing.T, at netip.AddrPort) {
	t.Helper()
	if !proxytest.Refuses(at) {
		t.Errorf("a client of %s was not turned away", at)
	}
}

// A bookish node tells of every client that ends, and what is to be read of the one that the test is about.
type bookish struct {
	*node
	at             netip.AddrPort // where the service "web" is
	sent, received uint64
	attempts       int

	mu      sync.Mutex // guards the field below
	endings []traffic.Ending
}

const unknown = 1<<64 - 1

// serve gives the service "web" its endpoints.
func (b *bookish) serve(t *testing.T, addrs ...registry.Addr) netip.AddrPort {
	t.Helper()
	b.at = tcpThrough(t, b.node, addrs...)
	return b.at
}

// dial connects to the service "web", whose endpoint does the given.
func (b *bookish) dial(t *testing.T, endpoint func(*net.TCPConn)) *net.TCPConn {
	t.Helper()
	return proxytest.Dial(t, b.serve(t, served(t, endpoint)))
}

// talk has a client exchange a few words with the service "web".
func (b *bookish) talk(t *testing.T) *proxytest.Talk {
	t.Helper()
	talk := proxytest.TalkTo(t, b.serve(t, served(t, proxytest.Chat("web"))))
	talk.MustSay(t, "hello")
	b.sent, b.received = uint64(len("hello\n")), uint64(len("web: hello\n"))
	return talk
}

// refuses checks that the service "web" turns its client away when it has these endpoints.
func (b *bookish) refuses(t *testing.T, addrs ...registry.Addr) {
	t.Helper()
	refuses(t, b.serve(t, addrs...))
}

// cuts checks that a client sees a reset.
func (b *bookish) cuts(t *testing.T, talk *proxytest.Talk) {
	t.Helper()
	if err := proxytest.Discard(talk.Conn); !proxytest.IsReset(err) {
		t.Errorf("the client saw %v; want a reset", err)
	}
}

// ended returns the endings for a reason so far.
func (b *bookish) ended(why traffic.Reason) (some []traffic.Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.endings {
		if e.Reason == why {
			some = append(some, e)
		}
	}
	return some
}

// The endpoints that failed a client are in its ending: the first few, with the addresses of names.
func (s suite) TestTheEndingOfAClientWithoutAnEndpointNamesThoseThatFailedIt(t *testing.T) {
	cfg := s.config()
	b := &bookish{}
	cfg.Ended = func(e traffic.Ending) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.endings = append(b.endings, e)
	}
	b.node = newNode(t, cfg)
	first, named := proxytest.Refusing(t), host("localhost", proxytest.Refusing(t).IP.Port())
	b.refuses(t, first, named, proxytest.Refusing(t), proxytest.Refusing(t), proxytest.Refusing(t), proxytest.Refusing(t))
	proxytest.Eventually(t, func() bool { return len(b.ended(traffic.DialFailed)) == 1 }, "the client ends")
	tried := b.ended(traffic.DialFailed)[0].Tried
	for _, want := range []string{first.String() + " (", "connection refused", named.String() + " (", fmt.Sprintf(":%d: ", named.IP.Port()), " and 2 more"} {
		if !strings.Contains(tried, want) {
			t.Errorf("the ending says %q; want %q in it", tried, want)
		}
	}
	if n := len(tried); n > 1000 {
		t.Errorf("it takes %d bytes", n)
	}
}

func (s suite) TestEveryReasonIsWhatWasDone(t *testing.T) {
	for _, c := range reasonCases {
		t.Run(c.name(), func(t *testing.T) { s.causes(t, c) })
	}
}

// causes checks that what a case does to a client is the reason of its end.
func (s suite) causes(t *testing.T, c reasonCase) {
	t.Helper()
	cfg := s.config()
	cfg.DrainTimeout = 200 * time.Millisecond
	if c.config != nil {
		c.config(&cfg)
	}
	b := &bookish{}
	cfg.Ended = func(e traffic.Ending) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.endings = append(b.endings, e)
	}
	b.node = newNode(t, cfg)
	started := time.Now()
	c.do(t, b)
	if !proxytest.Becomes(func() bool { return len(b.ended(c.why)) > 0 }) {
		t.Fatalf("the client has not ended for this reason, but: %+v", b.endings)
	}
	b.check(t, c.why, started)
	if lastingly[c.why] {
		for r := range b.balancer.RotationStatus() {
			if got := r.Condition.String(); r.Service.Name == named("web") && got != c.why.String() {
				t.Errorf("the condition of the service is %s", got)
			}
		}
	}
	b.end()
	if n := len(b.ended(c.why)); n != 1 {
		t.Errorf("when all is closed, it has ended %d times", n)
	}
	b.checkAll(t)
}

// check looks at the ending that the test is about.
func (b *bookish) check(t *testing.T, why traffic.Reason, started time.Time) {
	t.Helper()
	all := b.ended(why)
	e := all[0]
	served := e.Endpoint != registry.Addr{}
	var wrong []error
	complain := func(bad bool, what string) {
		if bad {
			wrong = append(wrong, errors.New(what))
		}
	}
	complain(len(all) != 1, "it has ended more than once")
	complain(e.Service.Name != named("web") || e.Listener.Number != b.port(e), "another service or port")
	complain(!e.Client.Addr().IsValid() || e.Client.Port() == 0, "no client")
	complain(e.Began.Before(started) || e.Duration < 0 || e.Began.Add(e.Duration).After(time.Now()), "another time")
	complain(e.Dialled < 0 || e.Dialled > e.Duration, "another time of dialling")
	complain(b.sent != unknown && e.Sent != b.sent, fmt.Sprintf("want %d bytes sent", b.sent))
	complain(b.received != unknown && e.Received != b.received, fmt.Sprintf("want %d bytes received", b.received))
	complain(served && e.Attempts == 0 || !served && e.Attempts != b.attempts, "another number of attempts")
	complain(served && e.Tried != "" || why == traffic.DialFailed && e.Listener.Protocol == registry.TCP && e.Tried == "", "the endpoints that failed it")
	complain(served && turnedAway[why] && e.Listener.Protocol == registry.TCP, "a client that was turned away has an endpoint") // a UDP session can lose its leave
	if wrong != nil {
		t.Errorf("%v:\n%+v", errors.Join(wrong...), all)
	}
}

func (b *bookish) port(e traffic.Ending) uint16 {
	if b.at.IsValid() && e.Listener.Protocol == registry.TCP {
		return b.at.Port()
	}
	return e.Listener.Number
}

// turnedAway are the reasons of clients that were given no endpoint.
var turnedAway = map[traffic.Reason]bool{
	traffic.NoEndpoints: true, traffic.ZeroWeight: true, traffic.NoLocalEndpoint: true, traffic.AllFailed: true, traffic.DialFailed: true, traffic.OwnListener: true, traffic.EndpointNotAllowed: true, traffic.NameFailed: true, traffic.DialLimit: true, traffic.EndpointLimit: true,
	traffic.Loop: true, traffic.SourceNotAllowed: true, traffic.NoProxyHeader: true, traffic.ConnectionLimit: true, traffic.ServiceLimit: true, traffic.ClientLimit: true, traffic.DescriptorLimit: true,
}

// lastingly are the reasons that new clients will meet too: the condition of the service has the same name.
var lastingly = map[traffic.Reason]bool{
	traffic.NoEndpoints: true, traffic.ZeroWeight: true, traffic.NoLocalEndpoint: true, traffic.AllFailed: true, traffic.DialFailed: true, traffic.OwnListener: true, traffic.EndpointNotAllowed: true, traffic.NameFailed: true,
}

// checkAll looks, when the node has stopped, whether the books are balanced: what was told of each
// client, one by one, is what was counted, and nothing is active any more.
func (b *bookish) checkAll(t *testing.T) {
	t.Helper()
	type count struct {
		ended          [64]uint64
		sent, received uint64
	}
	told, counted := make(map[registry.PortKey]*count), make(map[registry.PortKey]*count)
	of := func(m map[registry.PortKey]*count, key registry.PortKey) *count {
		if m[key] == nil {
			m[key] = new(count)
		}
		return m[key]
	}
	for _, e := range b.endings {
		c := of(told, e.Service)
		c.ended[e.Reason]++
		c.sent += e.Sent
		c.received += e.Received
	}
	for _, s := range b.Totals() {
		c := of(counted, s.Service)
		for r, n := range s.Ended {
			c.ended[r] += n
		}
		c.sent += s.Sent
		c.received += s.Received
		if s.Active != 0 {
			t.Errorf("%s: %d are still active", s.Service, s.Active)
		}
	}
	for key, c := range counted { // services that are gone may be forgotten
		if *c != *of(told, key) {
			t.Errorf("%s: counted %+v; told %+v", key, *c, *of(told, key))
		}
	}
}
