package conformancetest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/proxy/proxyproto"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// checkEvery is so long that an endpoint answers in time on a busy machine, too, in one of three checks at least.
const checkEvery = time.Second

// checkedService says that a service offers one port, and wants its endpoints checked.
func checkedService(name string, port registry.Port, check registry.Check) change {
	check.Wanted, check.Interval = registry.CheckOn, checkEvery
	return func(b *registry.Batch) {
		b.Services[named(name)] = &registry.Service{Name: named(name), Created: 1, Ports: []registry.Port{port}, Asked: &registry.Terms{Checks: check}}
	}
}

// A site says who it is to those that say a line. Requests by HTTP it answers with a status, 0 for never.
type site struct {
	name   string
	status atomic.Int64
}

func (s *site) serve(conn *net.TCPConn) {
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	for err == nil && !strings.HasPrefix(line, "GET ") {
		fmt.Fprintf(conn, "%s: %s", s.name, line)
		line, err = in.ReadString('\n')
	}
	switch status := s.status.Load(); {
	case err != nil:
	case status != 0:
		fmt.Fprintf(conn, "HTTP/1.1 %d .\r\n\r\n", status)
	default:
		proxytest.Hold(conn)
	}
}

// sites starts endpoints that answer requests by HTTP with a status.
func sites(t *testing.T, statuses ...int64) (all []*site, addrs []registry.Addr) {
	t.Helper()
	for i, status := range statuses {
		s := &site{name: fmt.Sprint("web-", i)}
		s.status.Store(status)
		all, addrs = append(all, s), append(addrs, served(t, s.serve))
	}
	return all, addrs
}

// failing waits until so many checked addresses fail, and all others pass.
func (n *node) failing(want int) {
	n.t.Helper()
	proxytest.Eventually(n.t, func() bool { c := n.balancer.Checker.Counts(); return c.Failing == want && c.Unknown == 0 }, "%d addresses that fail", want)
}

func (s suite) TestAnEndpointThatAcceptsAndNeverAnswersGetsNoClientsUntilItsChecksPass(t *testing.T) {
	n := newNode(t, s.config())
	all, addrs := sites(t, 200, 0, 200)
	port := proxytest.FreePort(t)
	n.apply(checkedService("web", tcp(port), registry.Check{Path: "/healthz"}), endpoints("web", addrs...))
	n.failing(1)
	for range 9 {
		if who := proxytest.TalkTo(t, proxytest.On(port)).MustSay(t, "hello"); who == "web-1" {
			t.Errorf("a client was given the endpoint that hangs")
		}
	}
	for _, e := range n.balancer.Status() {
		if hangs := e.Addr == addrs[1]; hangs != (e.CheckError != "") || hangs == e.FailingSince.IsZero() {
			t.Errorf("%v: failing since %v: %q", e.Addr, e.FailingSince, e.CheckError)
		}
	}
	all[1].status.Store(302)
	n.failing(0)
	seen := make(map[string]bool)
	for range 3 {
		seen[proxytest.TalkTo(t, proxytest.On(port)).MustSay(t, "hello")] = true
	}
	if !seen["web-1"] {
		t.Errorf("clients were given %v; want the endpoint that answers again among them", seen)
	}
}

func (s suite) TestAllEndpointsAreUsedWhenAllChecksFail(t *testing.T) {
	n := newNode(t, s.config())
	_, addrs := sites(t, 500, 500, 500)
	port := proxytest.FreePort(t)
	n.apply(checkedService("web", tcp(port), registry.Check{Path: "/healthz"}), endpoints("web", addrs...))
	n.failing(3)
	seen := make(map[string]int)
	for range 9 {
		seen[proxytest.TalkTo(t, proxytest.On(port)).MustSay(t, "hello")]++
	}
	if len(seen) != 3 {
		t.Errorf("clients were given %v; want all three", seen)
	}
}

// failing has a checked service do more than to give clients other endpoints when checks fail.
func failing(how registry.Failure, service change) change {
	return func(b *registry.Batch) {
		service(b)
		for _, s := range b.Services {
			terms := *s.Terms()
			terms.Failure = how
			s.SetTerms(terms)
		}
	}
}

func (s suite) TestClientsAreRefusedWhileAllChecksFail(t *testing.T) {
	n := newNode(t, s.config())
	all, addrs := sites(t, 500, 500)
	names, udpAddrs := udpSites(t, "dns")
	names["dns"].hangs.Store(true)
	at, dns := proxytest.On(proxytest.FreePort(t)), proxytest.On(proxytest.FreePort(t))
	refuse := registry.Failure{Refuse: true}
	n.apply(failing(refuse, checkedService("web", tcp(at.Port()), registry.Check{Path: "/healthz"})), endpoints("web", addrs...),
		failing(refuse, checkedService("dns", udp(dns.Port()), registry.Check{Send: "ping"})), endpoints("dns", udpAddrs...))
	n.failing(3)
	refuses(t, at)
	proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Ended[traffic.AllFailed] == 1 }, "the client to be counted as refused for that")
	proxytest.DialUDP(t, dns).Write([]byte("hello"))
	proxytest.Eventually(t, func() bool { return totalsOf(n, "dns").Dropped[traffic.DropAllFailed] == 1 }, "the datagram to be dropped for that")
	all[1].status.Store(200)
	names["dns"].hangs.Store(false)
	n.failing(1)
	for range 3 {
		if who := proxytest.TalkTo(t, at).MustSay(t, "hello"); who != "web-1" {
			t.Errorf("a client was given %s; want the one that passes", who)
		}
	}
	if a := proxytest.DialUDP(t, dns).Ask(t); a.Name != "dns" {
		t.Errorf("a session was given %q", a.Name)
	}
}

func (s suite) TestConnectionsOfAnEndpointWhoseChecksFailAreClosed(t *testing.T) {
	n := newNode(t, s.config())
	all, addrs := sites(t, 200, 200)
	at := proxytest.On(proxytest.FreePort(t))
	n.apply(failing(registry.Failure{Close: true}, checkedService("web", tcp(at.Port()), registry.Check{Path: "/healthz"})), endpoints("web", addrs...))
	n.failing(0)
	talks := n.talkToBoth(at)
	all[0].status.Store(500)
	n.failing(1)
	if err := proxytest.Discard(talks["web-0"].Conn); !proxytest.IsReset(err) {
		t.Errorf("the client of the endpoint that fails saw %v; want a reset", err)
	}
	talks["web-1"].MustSay(t, "still here")
	proxytest.Eventually(t, func() bool { return totalsOf(n, "web").Ended[traffic.EndpointFailed] == 1 }, "one connection to end for the checks")
	all[1].status.Store(500)
	n.failing(2)
	if err := proxytest.Discard(talks["web-1"].Conn); !proxytest.IsReset(err) {
		t.Errorf("the client of the last endpoint saw %v; want a reset", err)
	}
	late := proxytest.TalkTo(t, at) // as all fail, clients are given all
	late.MustSay(t, "hello")
	late.MustSay(t, "still here")
}

// talkToBoth returns a client of each of two sites of the service web. A busy machine may keep a dial back until another one is begun beside it, which has
// the turn of the next client: then one more comes, and the one too many leaves.
func (n *node) talkToBoth(at netip.AddrPort) map[string]*proxytest.Talk {
	n.t.Helper()
	talks, tooMany := make(map[string]*proxytest.Talk), false
	for len(talks) < 2 {
		talk := proxytest.TalkTo(n.t, at)
		if who := talk.MustSay(n.t, "hello"); talks[who] == nil {
			talks[who] = talk
		} else {
			tooMany = true
			talk.Conn.Close()
		}
	}
	if tooMany {
		proxytest.Eventually(n.t, func() bool { return totalsOf(n, "web").Active == 2 }, "the client too many to have left")
	}
	return talks
}

// passExcept has all sites but one pass their checks.
func passExcept(all []*site, name string) {
	for _, s := range all {
		if s.name != name {
			s.status.Store(200)
		}
	}
}

// It goes on with its endpoint when another one passes, also if it carries so much that another loop takes it over.
func (s suite) TestAConnectionThatBeganWhileAllChecksFailedGoesOn(t *testing.T) {
	n := newNode(t, s.config())
	all, addrs := sites(t, 500, 500)
	at := proxytest.On(proxytest.FreePort(t))
	n.apply(failing(registry.Failure{Close: true}, checkedService("web", tcp(at.Port()), registry.Check{Path: "/healthz"})), endpoints("web", addrs...))
	n.failing(2)
	talk := proxytest.TalkTo(t, at)
	who := talk.MustSay(t, "hello")
	passExcept(all, who)
	n.failing(1)
	const lines = 16
	line := strings.Repeat("bulk", 1<<18) + "\n"
	go func() {
		for range lines { // one after the other: it moves when several megabytes come without a pause
			_, _ = io.WriteString(talk.Conn, line) // who reads notices
		}
	}()
	if heard, err := io.CopyN(io.Discard, talk.Conn, int64(lines*len(who+": "+line))); err != nil {
		t.Fatalf("after %d bytes: %v", heard, err)
	}
	talk.MustSay(t, "still here")
}

func (s suite) TestAUDPEndpointThatAnswersItsCheckWronglyGetsNoSessions(t *testing.T) {
	n := newNode(t, s.config())
	port := proxytest.FreePort(t)
	n.apply(checkedService("dns", udp(port), registry.Check{Send: "ping", Expect: "well"}),
		endpoints("dns", servedUDP(t, "wellness"), servedUDP(t, "ill")))
	n.failing(1)
	for range 4 {
		if a := proxytest.DialUDP(t, proxytest.On(port)).Ask(t); a.Name != "wellness" {
			t.Errorf("a session was given %q", a.Name)
		}
	}
}

// A udpSite says who it is, unless it hangs.
type udpSite struct {
	*proxytest.UDPServer
	name  string
	hangs atomic.Bool
}

// udpSites starts endpoints that answer datagrams.
func udpSites(t *testing.T, names ...string) (all map[string]*udpSite, addrs []registry.Addr) {
	t.Helper()
	all = make(map[string]*udpSite)
	for _, name := range names {
		s := &udpSite{name: name}
		s.UDPServer = proxytest.ServeUDP(t, "127.0.0.1:0", func(payload []byte, from netip.AddrPort) []byte {
			if s.hangs.Load() {
				return nil
			}
			return proxytest.IdentifyUDP(s.name)(payload, from)
		})
		all[name], addrs = s, append(addrs, s.Addr)
	}
	return all, addrs
}

// A session moves once, to an endpoint that passes, and stays while none does: then all endpoints are used.
func (s suite) TestASessionLeavesAnEndpointWhoseChecksFailWhileAnotherPasses(t *testing.T) {
	n := newNode(t, s.config())
	port := proxytest.FreePort(t)
	all, addrs := udpSites(t, "one", "two")
	n.apply(checkedService("dns", udp(port), registry.Check{Send: "ping"}), endpoints("dns", addrs...))
	n.failing(0)
	client := proxytest.DialUDP(t, proxytest.On(port))
	left := all[client.Ask(t).Name]
	left.hangs.Store(true)
	n.failing(1)
	moved := client.Ask(t)
	if moved.Name == left.name {
		t.Fatalf("the session is still with %s", left.name)
	}
	left.hangs.Store(false)
	n.failing(0)
	if got := client.Ask(t); got != moved {
		t.Errorf("the endpoint that it left is well again, and the session went from %v to %v", moved, got)
	}
	for _, site := range all {
		site.hangs.Store(true)
	}
	n.failing(2)
	before := all[moved.Name].Received()
	client.Drops()
	proxytest.Eventually(t, func() bool { return all[moved.Name].Received() > before }, "a datagram at the endpoint that the session is with")
	all[moved.Name].hangs.Store(false)
	if got := client.Ask(t); got != moved {
		t.Errorf("all checks fail, and the session went from %v to %v", moved, got)
	}
	if totals := totalsOf(n, "dns"); totals.Begun != 1 {
		t.Errorf("%d sessions have begun; want one that moves", totals.Begun)
	}
}

// A check is the proxy's own connection, and its header says so.
func (s suite) TestChecksBearAHeaderThatNamesNoClient(t *testing.T) {
	check := func(version registry.ProxyHeader, port registry.Port, check registry.Check) change {
		return func(b *registry.Batch) {
			checkedService("web", port, check)(b)
			b.Services[named("web")].Asked.ProxyHeader = version
		}
	}
	for _, version := range versions {
		t.Run(version.String(), func(t *testing.T) {
			n := newNode(t, s.config())
			site := site{name: "web"}
			site.status.Store(200)
			at, headers := headedServer(t, site.serve)
			n.apply(check(version, tcp(proxytest.FreePort(t)), registry.Check{Path: "/"}), endpoints("web", at))
			n.failing(0)
			if h := proxytest.Receive(t, headers, "a check"); h != (heard{}) {
				t.Errorf("a check says %+v", h)
			}
		})
	}
	t.Run("a datagram", func(t *testing.T) {
		n := newNode(t, s.config())
		server := proxytest.ServeUDP(t, "127.0.0.1:0", func(payload []byte, _ netip.AddrPort) []byte {
			h, length, err := proxyproto.Parse(payload, registry.UDP)
			return fmt.Appendf(nil, "%v %v %s", h == proxyproto.Header{}, err, payload[length:])
		})
		n.apply(check(registry.ProxyV2, udp(proxytest.FreePort(t)), registry.Check{Send: "ping", Expect: "true <nil> ping"}), endpoints("web", server.Addr))
		n.failing(0)
	})
}

func (s suite) TestWhatIsNoLongerWantedIsNoLongerChecked(t *testing.T) {
	n := newNode(t, s.config())
	_, addrs := sites(t, 200, 200)
	port := proxytest.FreePort(t)
	targets := func(want int, when string) {
		t.Helper()
		if got := n.balancer.Checker.Counts().Targets; got != want {
			t.Errorf("%s, %d addresses are checked; want %d", when, got, want)
		}
	}
	n.apply(service("web", tcp(port)), endpoints("web", addrs...))
	targets(0, "while the service does not ask")
	n.apply(checkedService("web", tcp(port), registry.Check{}))
	targets(2, "when it asks")
	n.apply(endpoints("web", addrs[0]))
	targets(1, "when an endpoint has left")
	n.apply(endpoints("web", addrs...), checkedService("shop", tcp(proxytest.FreePort(t)), registry.Check{}), endpoints("shop", addrs...))
	targets(2, "when a second service has the same endpoints")
	n.apply(noService("web"))
	targets(2, "when one of two services is gone")
	n.apply(noService("shop"))
	targets(0, "when both are gone")
}

// Each of the four says of one endpoint what another says of none: it alone is asked at the right port, as it wants, and passes.
func (s suite) TestARecordSaysWhatAChecksRequestIs(t *testing.T) {
	n := newNode(t, s.config())
	var asked atomic.Pointer[string]
	health := served(t, func(conn *net.TCPConn) {
		in := bufio.NewReader(conn)
		request, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		text := request.Method + " " + request.URL.Path + " " + request.Host
		asked.Store(&text)
		fmt.Fprintf(conn, "HTTP/1.1 404 .\r\nContent-Length: 5\r\n\r\n") // as to HEAD, without its body
	})
	check := registry.Check{Path: "/healthz", Port: health.IP.Port(), Method: "HEAD", Host: "web.example", Status: registry.StatusRange{Low: 404, High: 404}}
	port := proxytest.FreePort(t)
	n.apply(checkedService("web", tcp(port), check), endpoints("web", served(t, proxytest.Chat("web"))))
	n.failing(0)
	if got := *asked.Load(); got != "HEAD /healthz web.example" {
		t.Errorf("the check asked %q", got)
	}
	check.Status = registry.StatusRange{}
	n.apply(checkedService("web", tcp(port), check))
	n.failing(1)
}
