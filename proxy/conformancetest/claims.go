package conformancetest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/proxy"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// Whose a port is, and what clients notice when that changes: nothing.

// D34: two services exchange their ports, again and again, and no client is ever refused or answered
// by a service that did not own the port at some time between its connecting and its answer.
func (s suite) TestSwappingPortsRefusesNobodyAndMisleadsNobody(t *testing.T) {
	swaps := times(1000)
	cfg := s.config()
	n := newNode(t, cfg)
	ports := [2]uint16{proxytest.FreePort(t), proxytest.FreePort(t)}
	names := [2]string{"a", "b"}
	// After an even number of swaps a has the first port, after an odd number the second.
	arrange := func(swapped int) {
		n.apply(service("a", tcp(ports[swapped%2])), service("b", tcp(ports[(swapped+1)%2])))
	}
	n.tell(endpoints("a", served(t, proxytest.Identify("a"))), endpoints("b", served(t, proxytest.Identify("b"))))
	arrange(0)

	var begun, applied atomic.Int64 // swaps
	var answers, certain atomic.Int64
	seen := make(chan int64, 1) // the swap that a client connected after, and had its answer before the next
	var clients sync.WaitGroup
	done := make(chan struct{})
	defer clients.Wait()
	defer close(done)
	for i := range 4 {
		clients.Go(func() {
			which := i % 2
			for !isClosed(done) {
				earliest := applied.Load() // this many swaps were in effect when it connected
				answer, err := proxytest.AskTCP(proxytest.On(ports[which]))
				latest := begun.Load() // and no more than this many when it had its answer
				owned := false
				for s := earliest; s <= latest; s++ {
					owned = owned || answer == names[(int(s)+which)%2]
				}
				if err != nil || !owned {
					t.Errorf("after swap %d, before %d: port %d of two answered %q, %v", earliest, latest+1, which, answer, err)
					return
				}
				answers.Add(1)
				if earliest == latest {
					certain.Add(1)
					select {
					case seen <- latest:
					default:
					}
				}
			}
		})
	}
	for s := 1; s <= swaps && !t.Failed(); s++ {
		// Each state lasts until a client has seen it, so that each answer can tell.
		for proxytest.Receive(t, seen, "a client between two swaps") < int64(s-1) {
		}
		begun.Store(int64(s))
		arrange(s)
		applied.Store(int64(s))
	}
	t.Logf("%d swaps, %d answers, of which %d could come from one service only", swaps, answers.Load(), certain.Load())
}

func (s suite) TestAConflictIsDecidedByAgeThenNameAndTheIncumbentStays(t *testing.T) { // D30
	cfg := s.config()
	n := newNode(t, cfg)
	at := proxytest.On(proxytest.FreePort(t))
	claims := map[string]change{
		"old":     serviceSince("old", 3, tcp(at.Port())),
		"young-a": serviceSince("young-a", 7, tcp(at.Port())),
		"young-b": serviceSince("young-b", 7, tcp(at.Port())),
	}
	order := []string{"old", "young-a", "young-b"}
	var ends []change
	for _, name := range order {
		n.apply(endpoints(name, served(t, proxytest.Identify(name))))
		ends = append(ends, noService(name))
	}
	for range 20 { // the outcome has nothing to do with chance
		var batch []change
		for _, i := range rand.Perm(len(order)) {
			batch = append(batch, claims[order[i]])
		}
		n.apply(batch...)
		wantClaims(t, n, at.Port(), order...)
		if got := proxytest.WhoAnswers(t, at); got != "old" {
			t.Fatalf("answered by %q", got)
		}
		n.apply(ends...)
	}

	n.apply(claims["young-b"])
	n.apply(claims["old"], claims["young-a"])
	wantClaims(t, n, at.Port(), "young-b", "old", "young-a")
	if got := proxytest.WhoAnswers(t, at); got != "young-b" {
		t.Errorf("the port of the incumbent is answered by %q", got)
	}
}

// wantClaims checks what Status says of who owns a port, and who waits for it.
func wantClaims(t *testing.T, n *node, port uint16, want ...string) {
	t.Helper()
	for _, s := range n.Status() {
		if s.ID.Number != port {
			continue
		}
		got := []string{s.Owner.String()}
		for _, w := range s.Waiting {
			got = append(got, w.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("who claims port %d (-want +got):\n%s", port, diff)
		}
		return
	}
	if want != nil {
		t.Fatalf("nobody claims port %d; want %q", port, want)
	}
}

func (s suite) TestTheNextInLineTakesOverWithoutARefusedClient(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	port := proxytest.FreePort(t)
	at := proxytest.On(port)
	for i, name := range []string{"first", "second", "third"} {
		n.apply(serviceSince(name, int64(i), tcp(port)), endpoints(name, served(t, proxytest.Identify(name))))
	}
	refused := hammer(t, at, func() { n.apply(noService("first")) })
	if got := proxytest.WhoAnswers(t, at); got != "second" {
		t.Errorf("answered by %q", got)
	}
	n.apply(noService("third")) // one who waits goes: nothing happens
	wantClaims(t, n, port, "second")
	elsewhere := service("second", tcp(proxytest.FreePort(t)))
	refused += hammer(t, at, func() { n.apply(elsewhere, serviceSince("first", 9, tcp(port))) })
	if got := proxytest.WhoAnswers(t, at); got != "first" {
		t.Errorf("answered by %q", got)
	}
	if refused > 0 {
		t.Errorf("%d clients were refused", refused)
	}
}

// Who deletes a service deletes its endpoints with it. The next in line has endpoints, so there is
// no moment at which a client of the port has to be turned away.
func (s suite) TestATakeOverFromAServiceThatGoesWithItsEndpointsRefusesNobody(t *testing.T) {
	takeOvers := times(2000)
	cfg := s.config()
	n := newNode(t, cfg)
	port := proxytest.FreePort(t)
	web := served(t, proxytest.Identify("web"))
	n.apply(serviceSince("heir-0", 0, tcp(port)), endpoints("heir-0", web))
	refused := hammer(t, proxytest.On(port), func() {
		for i := range takeOvers {
			last, next := fmt.Sprint("heir-", i), fmt.Sprint("heir-", i+1)
			n.apply(service(next, tcp(port)), endpoints(next, web))
			n.apply(noService(last), endpoints(last))
		}
	})
	if refused > 0 {
		t.Errorf("%d clients were turned away over %d take-overs", refused, takeOvers)
	}
}

// To delete a service and create it again in one step is to change nothing but its age: the socket
// stays, no client is refused, and sessions go on.
func (s suite) TestAServiceCreatedAnewDoesNotBlink(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	port := proxytest.FreePort(t)
	at := proxytest.On(port)
	again := func(revision int64) change { return serviceSince("web", revision, tcp(port), udp(port)) }
	// One address with two faces: the same endpoints record serves both protocols.
	both := served(t, proxytest.Identify("web"))
	session := proxytest.ServeUDP(t, both.String(), proxytest.IdentifyUDP("web"))
	n.apply(again(1), endpoints("web", both))
	n.apply(serviceSince("rival", 2, tcp(port), udp(port)), endpoints("rival", served(t, proxytest.Identify("rival"))))

	client := proxytest.DialUDP(t, at)
	before := client.Ask(t)
	refused := hammer(t, at, func() {
		for revision := range int64(50) {
			n.apply(again(10 + revision))
		}
	})
	if refused > 0 {
		t.Errorf("%d clients were refused", refused)
	}
	wantClaims(t, n, port, "web", "rival") // though it is the younger one now
	if after := client.Ask(t); after != before {
		t.Errorf("a session moved from %v to %v", before, after)
	}
	if got := session.Sessions(); got != 1 {
		t.Errorf("the endpoint has seen %d sessions of one client", got)
	}
}

func (s suite) TestAPortHeldByAStrangerIsTakenOnceItIsFree(t *testing.T) {
	cfg := s.config()
	cfg.HeldPortDelay, cfg.HeldPortProbePeriod = 100*time.Millisecond, 20*time.Millisecond
	n := newNode(t, cfg)
	port, other := proxytest.FreePort(t), proxytest.FreePort(t)
	stranger, err := net.Listen("tcp", proxytest.On(port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	strangerUDP, err := net.ListenPacket("udp", proxytest.On(port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer strangerUDP.Close()
	n.tell(
		service("web", tcp(port)), endpoints("web", served(t, proxytest.Identify("web"))),
		service("dns", udp(port)), endpoints("dns", servedUDP(t, "dns")),
		service("other", tcp(other)), endpoints("other", served(t, proxytest.Identify("other"))))
	if got := proxytest.WhoAnswers(t, proxytest.On(other)); got != "other" {
		t.Errorf("the port beside it is answered by %q", got)
	}
	errs := func() (open []uint16) {
		for _, s := range n.Status() {
			if s.Err == nil {
				open = append(open, s.ID.Number)
			}
		}
		return open
	}
	if got := errs(); !slices.Equal(got, []uint16{other}) {
		t.Errorf("Status says that these ports are open: %v; want only %d", got, other)
	}
	stranger.Close()
	strangerUDP.Close()
	proxytest.Eventually(t, func() bool { return len(errs()) == 3 }, "every port open")
	if got := proxytest.WhoAnswers(t, proxytest.On(port)); got != "web" {
		t.Errorf("answered by %q", got)
	}
	if got := proxytest.DialUDP(t, proxytest.On(port)).Ask(t).Name; got != "dns" {
		t.Errorf("answered by %q", got)
	}
}

func (s suite) TestAPortHeldByAStrangerIsForgottenWithItsService(t *testing.T) {
	cfg := s.config()
	cfg.HeldPortDelay, cfg.HeldPortProbePeriod = 100*time.Millisecond, 20*time.Millisecond
	n := newNode(t, cfg)
	port, kept := proxytest.FreePort(t), proxytest.FreePort(t)
	var strangers []net.Listener
	for _, held := range []uint16{port, kept} {
		stranger, err := net.Listen("tcp", proxytest.On(held).String())
		if err != nil {
			t.Fatal(err)
		}
		strangers = append(strangers, stranger)
		n.tell(service(fmt.Sprint("web-", held), tcp(held)))
	}
	n.tell(noService(fmt.Sprint("web-", port)))
	if status := n.Status(); len(status) != 1 || status[0].ID.Number != kept {
		t.Errorf("Status: %+v; want that of the other service", status)
	}
	for _, stranger := range strangers {
		stranger.Close()
	}
	proxytest.Eventually(t, func() bool { return n.Status()[0].Err == nil }, "the port of the other service to be taken")
	if !proxytest.Refuses(proxytest.On(port)) {
		t.Error("the port was opened for a service that is gone")
	}
}

func (s suite) TestStatusTellsWhoOwnsEachPort(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	select {
	case <-n.Synced():
		t.Error("synced before the first batch")
	default:
	}
	n.apply()
	proxytest.Receive(t, n.Synced(), "the proxy to be in sync after an empty batch")
	low, high := proxytest.FreePort(t), proxytest.FreePort(t)
	low, high = min(low, high), max(low, high)
	n.apply(
		serviceSince("a", 1, tcp(high), udp(high)),
		serviceSince("b", 2, registry.Port{Name: "http", Number: low}, udp(high)),
		service("headless")) // valid, and nothing to serve
	key := func(name, port string) registry.PortKey { return registry.PortKey{Name: named(name), Port: port} }
	want := []proxy.PortStatus{
		{ID: registry.ListenerID{Protocol: registry.TCP, Number: low}, Owner: key("b", "http")},
		{ID: registry.ListenerID{Protocol: registry.TCP, Number: high}, Owner: key("a", "")},
		{ID: registry.ListenerID{Protocol: registry.UDP, Number: high}, Owner: key("a", ""), Waiting: []registry.PortKey{key("b", "")}},
	}
	if diff := cmp.Diff(want, n.Status(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	n.apply(noService("a"), noService("b"), noService("headless"))
	if got := n.Status(); len(got) > 0 {
		t.Errorf("status after all went: %+v", got)
	}
}
