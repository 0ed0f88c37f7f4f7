//go:build linux

package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A udpService is one UDP port of an engine, and the service that owns it.
type udpService struct {
	*udpSocket
	lb        *LoadBalancerRR
	ownership atomic.Pointer[claim]
	addr      netip.AddrPort // where its clients find it
	claims    []*claim       // all there were
}

// newUDPEngine returns an engine that ends with the test, and leaves nothing behind.
func newUDPEngine(t testing.TB, cfg Config) *portable {
	t.Helper()
	proxytest.NothingLeaks(t)
	if !cfg.BindAddress.IsValid() {
		cfg.BindAddress = proxytest.Loopback
	}
	cfg = cfg.withDefaults()
	e := newPortable(cfg, newOwnPorts(cfg.BindAddress))
	t.Cleanup(func() {
		e.cut()
		e.work.Wait()
		if !e.budget.tryAcquire(e.budget.clients) {
			t.Error("not all descriptors were given back to the budget")
		}
	})
	return e
}

// serveUDP opens a port of e for a service with these endpoints.
func serveUDP(t testing.TB, e *portable, endpoints ...registry.Addr) *udpService {
	t.Helper()
	s := &udpService{lb: NewLoadBalancerRR(false)}
	s.set(endpoints...)
	s.ownership.Store(s.claim("dns"))
	s.open(t, e, 0)
	return s
}

func (s *udpService) open(t testing.TB, e *portable, port uint16) {
	t.Helper()
	opened, err := e.listenUDP(netip.AddrPortFrom(e.cfg.BindAddress, port), &s.ownership)
	if err != nil {
		t.Fatal(err)
	}
	s.udpSocket = opened.(*udpSocket)
	t.Cleanup(s.close)
	port = s.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	e.resolver.own.add(portID{registry.UDP, port})
	s.addr = netip.AddrPortFrom(e.cfg.BindAddress, port)
}

// claim makes the claim of a service whose endpoints set tells.
func (s *udpService) claim(name string) *claim {
	key := registry.PortKey{Name: registry.Name{Namespace: registry.DefaultNamespace, Name: name}}
	c := &claim{key: key, rotation: s.lb.hold(key), tally: &tally{service: key, protocol: registry.UDP}, tenure: newTenure()}
	s.claims = append(s.claims, c)
	return c
}

func (s *udpService) set(endpoints ...registry.Addr) { s.setOf("dns", endpoints...) }

func (s *udpService) setOf(name string, endpoints ...registry.Addr) {
	n := registry.Name{Namespace: registry.DefaultNamespace, Name: name}
	record := &registry.Endpoints{Name: n, ByPort: map[string][]registry.Addr{"": endpoints}}
	if len(endpoints) == 0 {
		record = nil
	}
	s.lb.OnUpdate(registry.Batch{Endpoints: map[registry.Name]*registry.Endpoints{n: record}})
	s.lb.letGo()
}

func (s *udpService) sessionCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// dropped counts the datagrams that were dropped so far, for each reason there was.
func (s *udpService) dropped() map[DropReason]uint64 {
	counts := make(map[DropReason]uint64)
	for _, c := range s.claims {
		for why := range dropReasons {
			if n := c.tally.dropped[why].Load(); n > 0 {
				counts[why] += n
			}
		}
	}
	return counts
}

// hasDropped waits until just these drops were counted.
func (s *udpService) hasDropped(t *testing.T, want map[DropReason]uint64) {
	t.Helper()
	proxytest.Eventually(t, func() bool { return maps.Equal(s.dropped(), want) },
		"drops %v; there are %v", want, stringer(func() string { return fmt.Sprint(s.dropped()) }))
}

type stringer func() string

func (s stringer) String() string { return s() }

func identity(t testing.TB, name string) registry.Addr {
	t.Helper()
	return proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP(name)).Addr
}

// deadUDP is an address of this machine that refuses datagrams.
func deadUDP(t testing.TB) registry.Addr {
	t.Helper()
	s := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	s.Close()
	return s.Addr
}

func TestDatagramsOfEveryLengthPassBothWays(t *testing.T) { // D41
	const most4, most6 = 65507, 65527
	for _, c := range []struct {
		family, loopback string
		lengths          []int
	}{
		{"IPv4", "127.0.0.1", []int{0, 1, 4096, 4097, 9000, most4, 0, most4}},
		{"IPv6", "::1", []int{0, 1, 4096, 4097, 9000, most4, most4 + 1, most6, 0, most6}},
	} {
		t.Run(c.family, func(t *testing.T) {
			e := newUDPEngine(t, Config{BindAddress: netip.MustParseAddr(c.loopback)})
			s := serveUDP(t, e, proxytest.ServeUDP(t, net.JoinHostPort(c.loopback, "0"), proxytest.EchoUDP).Addr)
			client := proxytest.DialUDP(t, s.addr)
			for _, n := range c.lengths {
				sent := bytes.Repeat([]byte(strconv.Itoa(n)), n)[:n]
				got, err := client.Exchange(sent)
				if err != nil || !bytes.Equal(got, sent) {
					t.Fatalf("%d bytes: %d came back, %v", n, len(got), err)
				}
			}
			if n := s.sessionCount(); n != 1 {
				t.Errorf("%d sessions; want 1", n)
			}
		})
	}
}

// What fits into IPv6 need not fit into IPv4. That costs the datagram, not the session, nor is it
// the endpoint's fault.
func TestADatagramTooLongForTheEndpointsFamilyIsDropped(t *testing.T) {
	e := newUDPEngine(t, Config{BindAddress: netip.IPv6Loopback()})
	s := serveUDP(t, e, proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP).Addr)
	client := proxytest.DialUDP(t, s.addr)
	if _, err := client.Write(make([]byte, 65508)); err != nil {
		t.Fatal(err)
	}
	s.hasDropped(t, map[DropReason]uint64{dropTooLong: 1})
	if got, err := client.Exchange([]byte("short")); err != nil || string(got) != "short" {
		t.Errorf("got %q, %v", got, err)
	}
	if s.ownership.Load().rotation.set.Load().endpoints[0].down(registry.UDP) {
		t.Error("the endpoint was blamed")
	}
}

// D45. A connected client is only given what comes from the address it is connected to.
func TestRepliesLeaveFromTheAddressTheClientSpokeTo(t *testing.T) {
	for _, c := range []struct {
		bind string
		ips  []string
	}{
		{"0.0.0.0", []string{"127.0.0.1", "127.0.0.2", "127.255.0.9", "::1"}},
		{"::", []string{"127.0.0.1", "127.0.0.2", "::1"}},
		{"127.0.0.2", []string{"127.0.0.2"}},
		{"::1", []string{"::1"}},
	} {
		t.Run(c.bind, func(t *testing.T) {
			e := newUDPEngine(t, Config{BindAddress: netip.MustParseAddr(c.bind)})
			one := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("1"))
			two := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("2"))
			s := serveUDP(t, e, one.Addr, two.Addr)
			for i, ip := range c.ips {
				client := proxytest.DialUDP(t, netip.AddrPortFrom(netip.MustParseAddr(ip), s.addr.Port()))
				first := client.Ask(t)
				if got := client.Ask(t); got != first {
					t.Errorf("client of %s: the second answer is %v; the first was %v", ip, got, first)
				}
				if got := s.sessionCount(); got != i+1 {
					t.Errorf("%d sessions after %d clients", got, i+1)
				}
			}
			s.mu.Lock()
			for key := range s.sessions {
				if key.client.Addr().Is4In6() || key.local.addr.Is4In6() {
					t.Errorf("an IPv4 client is known as %v", key)
				}
			}
			s.mu.Unlock()
			s.set(two.Addr) // also after a move
			client := proxytest.DialUDP(t, netip.AddrPortFrom(netip.MustParseAddr(c.ips[0]), s.addr.Port()))
			client.Ask(t)
		})
	}
}

func TestEachUDPSessionIsGivenTheNextEndpointAndKeepsIt(t *testing.T) {
	e := newUDPEngine(t, Config{})
	s := serveUDP(t, e, identity(t, "1"), identity(t, "2"), identity(t, "3"))
	var order string
	for range 4 {
		client := proxytest.DialUDP(t, s.addr)
		first := client.Ask(t)
		for range 3 {
			if got := client.Ask(t); got != first {
				t.Errorf("a session went from %v to %v", first, got)
			}
		}
		order += first.Name
	}
	if order != "1231" {
		t.Errorf("four sessions were given %s; want 1231", order)
	}
}

// D40: v0.4 set the timer after the first successful write, so such a session never ended.
func TestASilentSessionEndsWhetherOrNotItWasEverAnswered(t *testing.T) {
	e := newUDPEngine(t, Config{UDPTimeout: 100 * time.Millisecond})
	mute := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	s := serveUDP(t, e, identity(t, "1"), mute.Addr)
	sockets := proxytest.Sockets(t)
	answered, ignored := proxytest.DialUDP(t, s.addr), proxytest.DialUDP(t, s.addr)
	answered.Ask(t)
	ignored.Write([]byte("is anybody there?"))
	proxytest.Eventually(t, func() bool { return mute.Received() == 1 }, "the second session")
	proxytest.Eventually(t, func() bool { return s.sessionCount() == 0 && proxytest.Sockets(t) == sockets+2 },
		"all sessions gone")
}

func TestASessionStaysWhileOneSideSpeaks(t *testing.T) {
	const timeout = time.Second
	e := newUDPEngine(t, Config{UDPTimeout: timeout})
	mute := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	server := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("2"))
	s := serveUDP(t, e, mute.Addr, server.Addr)
	speaks, listens := proxytest.DialUDP(t, s.addr), proxytest.DialUDP(t, s.addr)
	speaks.Write([]byte("x"))
	backend := listens.Ask(t).Session
	for start := time.Now(); time.Since(start) < 2*timeout+timeout/2; time.Sleep(timeout / 20) {
		speaks.Write([]byte("x"))
		server.Send("x", backend)
	}
	if s.sessionCount() != 2 || mute.Sessions() != 1 {
		t.Errorf("%d sessions are left, and the endpoint that is only spoken to saw %d; want 2 and 1", s.sessionCount(), mute.Sessions())
	}
}

func TestASessionLeavesAnEndpointThatIsGoneWithTheNextDatagram(t *testing.T) { // D42
	e := newUDPEngine(t, Config{})
	one, two := identity(t, "1"), identity(t, "2")
	s := serveUDP(t, e, one, two)
	client := proxytest.DialUDP(t, s.addr)
	if got := client.Ask(t).Name; got != "1" {
		t.Fatalf("answered by %s", got)
	}
	s.set(two)
	if got := client.Ask(t).Name; got != "2" {
		t.Errorf("after its endpoint was gone, answered by %s", got)
	}
	if got := s.sessionCount(); got != 1 {
		t.Errorf("%d sessions; want 1", got)
	}
}

func TestASessionWhoseEndpointsAreAllGoneEnds(t *testing.T) {
	e := newUDPEngine(t, Config{})
	one := identity(t, "1")
	s := serveUDP(t, e, one)
	client := proxytest.DialUDP(t, s.addr)
	client.Ask(t)
	s.set()
	client.Write([]byte("lost"))
	s.hasDropped(t, map[DropReason]uint64{dropNoEndpoints: 1})
	proxytest.Eventually(t, func() bool { return s.sessionCount() == 0 }, "the session gone")
	s.set(one)
	client.Ask(t)
}

// Nothing is lost with an endpoint that refuses, for it has not seen what it refused.
func TestWhatAnEndpointRefusedIsAnsweredByTheNext(t *testing.T) {
	e := newUDPEngine(t, Config{})
	dies := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("dies"))
	s := serveUDP(t, e, dies.Addr, deadUDP(t), deadUDP(t), identity(t, "lives"))
	client := proxytest.DialUDP(t, s.addr)
	if got := client.Ask(t).Name; got != "dies" {
		t.Fatalf("answered by %s", got)
	}
	dies.Close()
	if got := client.Ask(t).Name; got != "lives" { // Ask sends once
		t.Errorf("answered by %s", got)
	}
	if got := s.sessionCount(); got != 1 {
		t.Errorf("%d sessions; want 1", got)
	}
	s.hasDropped(t, map[DropReason]uint64{})
	for range 8 {
		if got := proxytest.DialUDP(t, s.addr).Ask(t).Name; got != "lives" {
			t.Errorf("a newcomer was answered by %s", got)
		}
	}
	for _, ep := range s.ownership.Load().rotation.set.Load().endpoints[:3] {
		if !ep.down(registry.UDP) {
			t.Errorf("%v refused and is not passed over", ep.addr)
		}
	}
}

// A session that only ever sends learns of a refusal, too, and moves for it.
func TestASessionThatIsNeverAnsweredMovesWhenRefused(t *testing.T) {
	e := newUDPEngine(t, Config{})
	dies := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	lives := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	s := serveUDP(t, e, dies.Addr, lives.Addr)
	client := proxytest.DialUDP(t, s.addr)
	client.Write([]byte("1"))
	proxytest.Eventually(t, func() bool { return dies.Received() == 1 }, "a datagram at the first endpoint")
	dies.Close()
	for i := range int64(20) {
		client.Write([]byte("2"))
		proxytest.Eventually(t, func() bool { return lives.Received() == i+1 }, "datagram %d at the second endpoint", i+2)
	}
}

// Where nothing is ever answered, an endpoint that has not refused for a while counts as reached: when
// it does refuse, others that refused before are offered again.
func TestASessionThatHasSettledIsOfferedAllEndpointsAnew(t *testing.T) {
	e := newUDPEngine(t, Config{})
	returns := proxytest.At(proxytest.On(proxytest.FreePort(t)))
	dies := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	s := serveUDP(t, e, returns, dies.Addr)
	client := proxytest.DialUDP(t, s.addr)
	client.Write([]byte("1"))
	proxytest.Eventually(t, func() bool { return dies.Received() == 1 }, "a datagram at the second endpoint")
	returned := proxytest.ServeUDP(t, returns.String(), proxytest.MuteUDP)
	s.mu.Lock()
	for _, session := range s.sessions {
		session.mu.Lock()
		session.backend.began -= settleTime // a while later
		session.mu.Unlock()
	}
	s.mu.Unlock()
	dies.Close()
	client.Write([]byte("2"))
	proxytest.Eventually(t, func() bool { return returned.Received() == 1 }, "the datagram at the endpoint that returned")
	s.hasDropped(t, map[DropReason]uint64{})
}

// What was answered is not sent again, whatever happens to the endpoint then.
func TestWhatWasAnsweredIsNotSentAgain(t *testing.T) {
	e := newUDPEngine(t, Config{})
	next := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("2"))
	s := serveUDP(t, e, identity(t, "1"), next.Addr)
	client := proxytest.DialUDP(t, s.addr)
	client.Ask(t)
	s.mu.Lock()
	for _, session := range s.sessions {
		session.refused(session.current(), errors.New("a refusal that was long on its way"))
	}
	s.mu.Unlock()
	if got := client.Ask(t).Name; got != "2" {
		t.Errorf("answered by %s", got)
	}
	if n := next.Received(); n != 1 {
		t.Errorf("the next endpoint was sent %d datagrams; want 1", n)
	}
}

// With every endpoint refusing, each datagram is offered to each endpoint once, and that is that:
// no session goes round and round.
func TestWhenAllEndpointsRefuseADatagramIsDropped(t *testing.T) {
	e := newUDPEngine(t, Config{})
	s := serveUDP(t, e, deadUDP(t), deadUDP(t), deadUDP(t))
	client := proxytest.DialUDP(t, s.addr)
	for i := range uint64(5) {
		client.Write([]byte("lost"))
		s.hasDropped(t, map[DropReason]uint64{dropUnreachable: i + 1})
		proxytest.Eventually(t, func() bool { return s.sessionCount() == 0 }, "the session gone")
	}
}

// The same for a burst that waited for the endpoint, and of which only the second datagram meets with
// the refusal.
func TestABurstThatWasRefusedGoesToTheNextEndpointInOrder(t *testing.T) {
	e := newUDPEngine(t, Config{})
	dead := deadUDP(t)
	lookedUp := make(chan struct{})
	e.resolver.lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		select {
		case <-lookedUp:
			return []netip.Addr{proxytest.Loopback}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s := serveUDP(t, e, registry.Addr{Host: "dead.example", IP: dead.IP}, proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP).Addr)
	client := proxytest.DialUDP(t, s.addr)
	for i := range byte(10) {
		client.Write([]byte{i})
	}
	proxytest.Eventually(t, func() bool { return e.sessions.waitingBytes.Load() == 10 }, "ten bytes waiting")
	close(lookedUp)
	client.SetReadDeadline(time.Now().Add(proxytest.Patience))
	for i := range byte(10) {
		buf := make([]byte, 10)
		if n, err := client.Read(buf); err != nil || n != 1 || buf[0] != i {
			t.Fatalf("got %v, %v; want %d", buf[:n], err, i)
		}
	}
}

// A datagram too long to keep is lost with the endpoint that refuses it; the session moves all the same.
func TestALongDatagramThatWasRefusedIsCounted(t *testing.T) {
	e := newUDPEngine(t, Config{})
	s := serveUDP(t, e, deadUDP(t), identity(t, "lives"))
	client := proxytest.DialUDP(t, s.addr)
	client.Write(make([]byte, maxKept+1))
	s.hasDropped(t, map[DropReason]uint64{dropUnreachable: 1})
	if got := client.Ask(t).Name; got != "lives" {
		t.Errorf("answered by %s", got)
	}
	if got := s.sessionCount(); got != 1 {
		t.Errorf("%d sessions; want 1", got)
	}
}

func TestRepliesOfAnEndpointThatWasLeftAreNotPassedOn(t *testing.T) {
	e := newUDPEngine(t, Config{})
	left := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("left"))
	s := serveUDP(t, e, left.Addr, identity(t, "2"))
	client := proxytest.DialUDP(t, s.addr)
	old := client.Ask(t).Session
	s.setOf("dns", s.ownership.Load().rotation.set.Load().endpoints[1].addr)
	if got := client.Ask(t).Name; got != "2" {
		t.Fatalf("answered by %s", got)
	}
	for range 10 {
		left.Send("late", old) // refused: nobody is there any more
	}
	// And one that was being read just when the session left:
	owner := s.ownership.Load()
	key := sessionKey{client: client.LocalAddr().(*net.UDPAddr).AddrPort()}
	newSession(s.udpSocket, key, owner).reply(&udpBackend{endpoint: new(endpoint)}, []byte("late"))
	s.hasDropped(t, map[DropReason]uint64{dropEnded: 1})
	if got, err := client.Exchange([]byte("the next answer")); err != nil || !bytes.HasSuffix(got, []byte("the next answer")) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestAnEndpointThatIsGoneAnswersWhatItWasAskedAndNoMore(t *testing.T) {
	e := newUDPEngine(t, Config{})
	release := make(chan struct{})
	left := proxytest.ServeUDP(t, "127.0.0.1:0", func(payload []byte, from netip.AddrPort) []byte {
		if !bytes.HasSuffix(payload, []byte("-1")) {
			<-release
		}
		return proxytest.IdentifyUDP("left")(payload, from)
	})
	s := serveUDP(t, e, left.Addr, identity(t, "2"))
	client := proxytest.DialUDP(t, s.addr)
	session := client.Ask(t).Session
	if _, err := client.Write([]byte("asked before")); err != nil {
		t.Fatal(err)
	}
	proxytest.Eventually(t, s.waitsForAnswer, "the question is on its way")
	s.setOf("dns", s.ownership.Load().rotation.set.Load().endpoints[1].addr)
	close(release)
	buf := make([]byte, 100)
	client.SetReadDeadline(time.Now().Add(proxytest.Patience))
	if n, err := client.Read(buf); err != nil || !bytes.HasSuffix(buf[:n], []byte("asked before")) {
		t.Fatalf("got %q, %v; want the answer to what was asked before", buf[:n], err)
	}
	if err := left.Send("unasked", session); err != nil {
		t.Fatal(err)
	}
	s.hasDropped(t, map[DropReason]uint64{dropEnded: 1})
	if got := client.Ask(t).Name; got != "2" {
		t.Errorf("answered by %s", got)
	}
}

// waitsForAnswer tells whether a session has sent on what was not answered yet.
func (s *udpService) waitsForAnswer() (waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, session := range s.sessions {
		session.mu.Lock()
		waits = waits || session.unanswered
		session.mu.Unlock()
	}
	return waits
}

func TestAfterDisownNothingComesFromTheOldService(t *testing.T) {
	e := newUDPEngine(t, Config{})
	var sequence atomic.Int64
	stop, streaming := make(chan struct{}), sync.WaitGroup{}
	t.Cleanup(streaming.Wait)
	t.Cleanup(sync.OnceFunc(func() { close(stop) }))
	stream, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(proxytest.On(0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	s := serveUDP(t, e, proxytest.At(stream.LocalAddr().(*net.UDPAddr).AddrPort()))
	s.setOf("heir", identity(t, "heir"))
	streaming.Go(func() { // an endpoint that does not stop talking
		buf := make([]byte, 100)
		_, session, err := stream.ReadFromUDPAddrPort(buf)
		for err == nil {
			select {
			case <-stop:
				return
			default:
			}
			stream.WriteToUDPAddrPort(strconv.AppendInt(nil, sequence.Add(1), 10), session) // refused in the end
		}
	})
	client := proxytest.DialUDP(t, s.addr)
	client.Write([]byte("begin"))
	heard := make(chan int64, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf, most, signal := make([]byte, 100), int64(0), heard
		for {
			n, err := client.Read(buf)
			if err != nil {
				heard <- most
				return
			}
			if most, _ = strconv.ParseInt(string(buf[:n]), 10, 64); signal != nil {
				signal <- most
				signal = nil
			}
		}
	}()
	proxytest.Receive(t, heard, "the stream to begin")

	previous := s.ownership.Swap(s.claim("heir"))
	s.disown(previous)
	last := sequence.Load() + 1 // numbered, and sent at any time from now on
	if got := s.sessionCount(); got != 0 {
		t.Errorf("%d sessions are left", got)
	}
	before := sequence.Load()
	proxytest.Eventually(t, func() bool { return sequence.Load() > before+1000 }, "a thousand more of the stream")
	client.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	<-done
	if got := <-heard; got > last {
		t.Errorf("number %d of the stream arrived; %d was sent last before disown returned", got, last)
	}
	if got := client.Ask(t).Name; got != "heir" {
		t.Errorf("answered by %s", got)
	}
}

// A session that was evicted just before may still be busy with a reply.
func TestDisownWaitsForSessionsThatHadEndedBefore(t *testing.T) {
	e := newUDPEngine(t, Config{})
	busy := make(chan struct{})
	e.resolver.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		<-busy // stands for anything that takes long
		return nil, errors.New("no such host")
	}
	s := serveUDP(t, e, registry.Addr{Host: "slow.example", IP: netip.AddrPortFrom(netip.Addr{}, 53)})
	proxytest.DialUDP(t, s.addr).Write([]byte("question"))
	proxytest.Eventually(t, func() bool { return s.sessionCount() == 1 }, "a session")
	s.mu.Lock()
	sessions := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	sessions[0].stop(Evicted)
	disowned := make(chan struct{})
	go func() {
		defer close(disowned)
		s.disown(s.ownership.Swap(s.claim("heir")))
	}()
	select {
	case <-disowned:
		t.Error("disown returned although a session was busy")
	case <-time.After(20 * time.Millisecond): // it would have taken microseconds
	}
	close(busy)
	proxytest.Receive(t, disowned, "disown to return")
}

// A client that speaks while its port changes hands is served by one owner or the other, and by the
// new one from when disown has returned.
func TestAClientThatSpeaksWhileItsPortChangesHandsFollows(t *testing.T) {
	e := newUDPEngine(t, Config{})
	s := serveUDP(t, e, identity(t, "dns"))
	s.setOf("heir", identity(t, "heir"))
	owners := []*claim{s.ownership.Load(), s.claim("heir")}
	stop, speaking := make(chan struct{}), sync.WaitGroup{}
	for range 4 {
		client := proxytest.DialUDP(t, s.addr)
		speaking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					client.Try(time.Millisecond)
				}
			}
		})
	}
	client := proxytest.DialUDP(t, s.addr)
	for i := range 200 {
		previous, next := owners[i%2], owners[(i+1)%2]
		s.ownership.Store(next)
		s.disown(previous)
		if got := client.Ask(t).Name; got != next.key.Name.Name {
			t.Errorf("round %d: answered by %s; want %s", i, got, next.key)
		}
	}
	close(stop)
	speaking.Wait()
}

// The reader may have begun a session for the old owner, and not yet made it known, when the port
// changes hands: disown cannot see it then.
func TestASessionOfTheOldOwnerThatComesTooLateEnds(t *testing.T) {
	e := newUDPEngine(t, Config{})
	s := serveUDP(t, e, identity(t, "1"))
	previous := s.ownership.Load()
	begin := func() *session {
		e.budget.tryAcquire(1)
		return newSession(s.udpSocket, sessionKey{}, previous)
	}
	finishes := func(when string, session *session) {
		t.Helper()
		s.add(session)
		if session.ctx.Err() == nil || s.sessionCount() != 0 {
			t.Errorf("after %s a late session goes on", when)
		}
		session.stop(Idle)
		if session.forward([]byte("late")) {
			t.Errorf("after %s a late session takes datagrams", when)
		}
		session.run(nil, nil)
	}
	late := begin()
	s.ownership.Store(s.claim("heir"))
	s.disown(previous)
	finishes("disown", late)
	s.ownership.Store(previous)
	late = begin()
	s.close()
	finishes("close", late)
}

func TestClosingFreesThePortAndTheSessions(t *testing.T) { // D43
	e := newUDPEngine(t, Config{})
	s := serveUDP(t, e, identity(t, "1"))
	sockets := proxytest.Sockets(t) // of them one the port's
	for range 50 {
		clients := []*proxytest.UDPClient{proxytest.DialUDP(t, s.addr), proxytest.DialUDP(t, s.addr)}
		for _, client := range clients {
			client.Ask(t)
			client.Write([]byte("and another"))
		}
		s.close()
		s.close() // safe twice
		for _, client := range clients {
			client.Close()
		}
		if got := proxytest.Sockets(t); got != sockets-1 {
			t.Fatalf("%d sockets are left; want %d", got, sockets-1)
		}
		s.open(t, e, s.addr.Port())
	}
}

func TestEverythingEndsWithTheEngine(t *testing.T) {
	e := newUDPEngine(t, Config{})
	e.resolver.lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	named := registry.Addr{Host: "slow.example", IP: netip.AddrPortFrom(netip.Addr{}, 53)}
	s := serveUDP(t, e, identity(t, "1"), named)
	proxytest.DialUDP(t, s.addr).Ask(t)
	proxytest.DialUDP(t, s.addr).Write([]byte("waits for a name"))
	proxytest.Eventually(t, func() bool { return s.sessionCount() == 2 }, "two sessions")
	e.cut()
	e.work.Wait()
	if got := s.sessionCount(); got != 0 {
		t.Errorf("%d sessions are left", got)
	}
}

// D36: v0.4 looked names up in the loop that reads for all clients.
func TestAClientThatWaitsForANameHoldsUpNobody(t *testing.T) {
	e := newUDPEngine(t, Config{})
	answer := make(chan struct{})
	e.resolver.lookup = func(ctx context.Context, _, host string) ([]netip.Addr, error) {
		if host != "slow.example" {
			return nil, errors.New("no such host")
		}
		select {
		case <-answer:
			return []netip.Addr{proxytest.Loopback}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	slow := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("slow"))
	named := registry.Addr{Host: "slow.example", IP: netip.AddrPortFrom(netip.Addr{}, slow.Addr.IP.Port())}
	s := serveUDP(t, e, named, identity(t, "fast"))
	waits, other := proxytest.DialUDP(t, s.addr), proxytest.DialUDP(t, s.addr)
	for i := range maxWaiting + 3 {
		fmt.Fprintf(waits, "%02d", i)
	}
	s.hasDropped(t, map[DropReason]uint64{dropWaiting: 3})
	for range 3 {
		if got := other.Ask(t).Name; got != "fast" {
			t.Errorf("answered by %s", got)
		}
	}
	close(answer)
	var got []string
	for range maxWaiting {
		buf := make([]byte, 100)
		waits.SetReadDeadline(time.Now().Add(proxytest.Patience))
		n, err := waits.Read(buf)
		if err != nil {
			t.Fatalf("after %v: %v", got, err)
		}
		got = append(got, string(buf[n-2:n]))
	}
	if !slices.IsSorted(got) || got[0] != "00" {
		t.Errorf("answers to %v; want them in order", got)
	}
	if got := e.sessions.waitingBytes.Load(); got != 0 {
		t.Errorf("%d bytes are taken for waiting", got)
	}

	s.set(registry.Addr{Host: "unknown.example", IP: named.IP})
	waits.Write([]byte("lost"))
	s.hasDropped(t, map[DropReason]uint64{dropWaiting: 3, dropUnreachable: 1})
}

// Strangers can make datagrams wait, but not without bound.
func TestWhatWaitsForNamesIsBounded(t *testing.T) {
	e := newUDPEngine(t, Config{})
	e.resolver.lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s := serveUDP(t, e, registry.Addr{Host: "slow.example", IP: netip.AddrPortFrom(netip.Addr{}, 53)})
	const length = 60_000
	fit := maxWaitingBytes / length
	for i := range fit + 10 {
		proxytest.DialUDP(t, s.addr).Write(make([]byte, length))
		proxytest.Eventually(t, func() bool { return s.sessionCount() == i+1 }, "session %d", i+1)
	}
	s.hasDropped(t, map[DropReason]uint64{dropWaiting: 10})
	s.close()
	s.hasDropped(t, map[DropReason]uint64{dropWaiting: 10, dropEnded: uint64(fit)})
	if got := e.sessions.waitingBytes.Load(); got != 0 {
		t.Errorf("%d bytes are taken for waiting", got)
	}
}

func TestEveryDropHasItsReason(t *testing.T) {
	t.Run("no endpoints", func(t *testing.T) {
		e := newUDPEngine(t, Config{})
		s := serveUDP(t, e)
		proxytest.DialUDP(t, s.addr).Write([]byte("lost"))
		s.hasDropped(t, map[DropReason]uint64{dropNoEndpoints: 1})
	})
	t.Run("own listener", func(t *testing.T) {
		e := newUDPEngine(t, Config{})
		s := serveUDP(t, e)
		s.set(proxytest.At(s.addr))
		client := proxytest.DialUDP(t, s.addr)
		client.Write([]byte("lost"))
		s.hasDropped(t, map[DropReason]uint64{dropOwnListener: 1})
		s.set(proxytest.At(s.addr), identity(t, "well"))
		for range 4 {
			if got := proxytest.DialUDP(t, s.addr).Ask(t).Name; got != "well" {
				t.Errorf("answered by %s", got)
			}
		}
	})
	t.Run("endpoint not allowed", func(t *testing.T) {
		e := newUDPEngine(t, Config{AllowedEndpoints: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}})
		s := serveUDP(t, e, identity(t, "elsewhere"))
		proxytest.DialUDP(t, s.addr).Write([]byte("lost"))
		s.hasDropped(t, map[DropReason]uint64{dropNotAllowed: 1})
		s.set(identity(t, "elsewhere"), proxytest.ServeUDP(t, "127.0.0.2:0", proxytest.IdentifyUDP("well")).Addr)
		for range 4 {
			if got := proxytest.DialUDP(t, s.addr).Ask(t).Name; got != "well" {
				t.Errorf("answered by %s", got)
			}
		}
	})
	t.Run("client not allowed", func(t *testing.T) {
		e := newUDPEngine(t, Config{})
		s := serveUDP(t, e, identity(t, "1"))
		narrower := *s.ownership.Load()
		narrower.sources = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
		s.ownership.Store(&narrower)
		proxytest.DialUDP(t, s.addr).Write([]byte("lost"))
		s.hasDropped(t, map[DropReason]uint64{dropSource: 1})
		proxytest.DialUDPFrom(t, netip.MustParseAddr("127.0.0.2"), s.addr).Ask(t)
	})
	t.Run("session limit", func(t *testing.T) {
		e := newUDPEngine(t, Config{MaxUDPSessions: 1, MaxUDPSessionsPerService: 2})
		s := serveUDP(t, e, identity(t, "1"))
		known := proxytest.DialUDP(t, s.addr)
		known.Ask(t)
		known.Ask(t)
		proxytest.DialUDP(t, s.addr).Write([]byte("lost"))
		s.hasDropped(t, map[DropReason]uint64{dropSessionLimit: 1})
	})
	t.Run("session limit of a service", func(t *testing.T) {
		e := newUDPEngine(t, Config{MaxUDPSessionsPerService: 1})
		s := serveUDP(t, e, identity(t, "1"))
		known := proxytest.DialUDP(t, s.addr)
		known.Ask(t)
		known.Ask(t)
		proxytest.DialUDP(t, s.addr).Write([]byte("lost"))
		s.hasDropped(t, map[DropReason]uint64{dropServiceLimit: 1})
		known.Ask(t)
	})
	t.Run("out of descriptors", func(t *testing.T) {
		e := newUDPEngine(t, Config{})
		s := serveUDP(t, e, identity(t, "1"))
		known, stranger := proxytest.DialUDP(t, s.addr), proxytest.DialUDP(t, s.addr)
		known.Ask(t)
		var taken int
		for e.budget.tryAcquire(1) {
			taken++
		}
		stranger.Write([]byte("lost"))
		s.hasDropped(t, map[DropReason]uint64{dropDescriptorLimit: 1})
		known.Ask(t)
		e.budget.release(taken)
		stranger.Ask(t)
	})
	t.Run("overload", func(t *testing.T) {
		e := newUDPEngine(t, Config{MaxUDPSessions: 8})
		s := serveUDP(t, e, identity(t, "1"))
		known, stranger := proxytest.DialUDP(t, s.addr), proxytest.DialUDP(t, s.addr)
		known.Ask(t)
		e.sessions.existing.Add(8 + 1 + 64 - 1) // that have ended, and are slow to leave
		stranger.Write([]byte("lost"))
		s.hasDropped(t, map[DropReason]uint64{dropOverload: 1})
		known.Ask(t)
		e.sessions.existing.Add(-1)
		stranger.Ask(t)
	})
	t.Run("queue full", func(t *testing.T) {
		e := newUDPEngine(t, Config{})
		s := serveUDP(t, e, identity(t, "1"))
		must(t, s.conn.SetReadBuffer(1<<16))
		client := proxytest.DialUDP(t, s.addr)
		client.Ask(t)
		s.mu.Lock() // nothing can be read now but one datagram
		const many = 2000
		for range many {
			client.Write(make([]byte, 100))
		}
		s.mu.Unlock()
		client.AskOften(t)
		sent := s.ownership.Load().tally.datagramsSent.Load()
		if lost := s.dropped()[dropQueueFull]; lost == 0 || lost+sent < many {
			t.Errorf("of %d datagrams %d were sent on, and %d counted as lost", many, sent, lost)
		}
	})
	t.Run("client unreachable", func(t *testing.T) {
		e := newUDPEngine(t, Config{BindAddress: netip.IPv4Unspecified()})
		server := proxytest.ServeUDP(t, "[::1]:0", func([]byte, netip.AddrPort) []byte { return make([]byte, 65527) })
		s := serveUDP(t, e, server.Addr) // which answers more than the client's family can hold
		proxytest.DialUDP(t, proxytest.On(s.addr.Port())).Write([]byte("question"))
		s.hasDropped(t, map[DropReason]uint64{dropClient: 1})
	})
}

// What this machine cannot send just then is dropped, counted, and forgotten: neither the client nor
// the endpoint is to blame.
func TestWhatCannotBeSentCostsTheDatagramOnly(t *testing.T) {
	e := newUDPEngine(t, Config{})
	s := serveUDP(t, e, identity(t, "1"))
	client := proxytest.DialUDP(t, s.addr)
	before := client.Ask(t)
	sendsEnd := func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, session := range s.sessions {
			session.mu.Lock()
			io := &session.backend.io
			if err == nil {
				io.init(session.backend.conn)
			} else {
				io.write = func(uintptr) bool { io.outErr = err; return true }
			}
			session.mu.Unlock()
		}
	}
	for i, err := range []error{unix.EAGAIN, unix.ENOBUFS, unix.EPERM} {
		sendsEnd(err)
		client.Write([]byte("lost"))
		s.hasDropped(t, map[DropReason]uint64{dropNotSent: uint64(i) + 1})
	}
	sendsEnd(nil)
	if got := client.Ask(t); got != before {
		t.Errorf("the session went from %v to %v", before, got)
	}
	if s.ownership.Load().rotation.set.Load().endpoints[0].down(registry.UDP) {
		t.Error("the endpoint was blamed")
	}
}

// When a path turns out to carry less than thought (path MTU discovery, RFC 1191), the kernel says so
// once, by an error of whatever we ask of the socket next. That is news, not a refusal.
func TestNewsOfAShorterPathCostsNothing(t *testing.T) {
	server := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP)
	b, err := dialUDPBackend(&endpoint{addr: server.Addr}, server.Addr.IP, proxytest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer b.conn.Close()
	write, receive, news := b.io.write, b.io.receive, 0
	first := func(is *error, otherwise func(uintptr) bool) func(uintptr) bool {
		told := false
		return func(fd uintptr) bool {
			if !told {
				told, *is = true, unix.EMSGSIZE
				news++
				return true
			}
			return otherwise(fd)
		}
	}
	b.io.write, b.io.receive = first(&b.io.outErr, write), first(&b.io.inErr, receive)
	if err := b.send([]byte("question")); err != nil {
		t.Errorf("send: %v", err)
	}
	buf, n, err := b.receive()
	if err != nil || string(buf[:n]) != "question" || news != 2 {
		t.Errorf("received %d bytes, %v, after %d errors; want the echo after 2", n, err, news)
	}
}

// D32: an error of the port's socket must not leave an open port that nobody reads.
func TestReadingGoesOnAfterAnError(t *testing.T) {
	e := newUDPEngine(t, Config{})
	s := serveUDP(t, e, identity(t, "1"))
	client := proxytest.DialUDP(t, s.addr)
	client.Ask(t)
	s.conn.SetReadDeadline(aLongTimeAgo) // makes every read fail
	client.Write([]byte("unheard"))
	time.Sleep(20 * time.Millisecond)
	s.conn.SetReadDeadline(time.Time{})
	client.AskOften(t)
}

// A flood of forged sources only evicts itself.
func TestAFloodOfStrangersLeavesKnownClientsTheirSessions(t *testing.T) { // D44
	const known, strangers, limit = 50, 2000, 200
	e := newUDPEngine(t, Config{MaxUDPSessions: limit, MaxUDPSessionsPerService: limit})
	s := serveUDP(t, e, identity(t, "1"), identity(t, "2"))
	var clients []*proxytest.UDPClient
	var answers []proxytest.Answer
	for range known {
		client := proxytest.DialUDP(t, s.addr)
		client.Ask(t)
		clients, answers = append(clients, client), append(answers, client.Ask(t))
	}
	for i := range strangers {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), 0)
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(s.addr))
		if err != nil {
			t.Fatal(err)
		}
		conn.Write([]byte("forged"))
		conn.Close()
		if i%100 == 0 {
			clients[i/100].Ask(t)
		}
	}
	seen := func() uint64 {
		return e.sessions.evictions.Load() + uint64(s.sessionCount()) + s.dropped()[dropOverload]
	}
	proxytest.Eventually(t, func() bool { return seen() == known+strangers }, "every stranger given a session or, on a slow machine, refused one")
	for i, client := range clients {
		if got := client.Ask(t); got != answers[i] {
			t.Errorf("known client %d had %v and now has %v", i, answers[i], got)
		}
	}
	if got := s.sessionCount(); got != limit {
		t.Errorf("%d sessions; want %d", got, limit)
	}
	for why, n := range s.dropped() {
		if why != dropEnded && why != dropOverload { // the former: answers to strangers whose sessions had ended
			t.Errorf("%d datagrams were dropped: %v", n, why)
		}
	}
}

// To send again is not enough to be known: a forged source can do that, too.
func TestAClientIsKnownOnceItSpeaksAfterAReply(t *testing.T) {
	e := newUDPEngine(t, Config{MaxUDPSessions: 2, MaxUDPSessionsPerService: 2})
	mute := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	s := serveUDP(t, e, mute.Addr, identity(t, "2"), identity(t, "3"))
	unheard, known := proxytest.DialUDP(t, s.addr), proxytest.DialUDP(t, s.addr)
	for range int64(5) {
		unheard.Write([]byte("again"))
	}
	proxytest.Eventually(t, func() bool { return mute.Received() == 5 }, "five datagrams at the endpoint")
	known.Ask(t)
	e.sessions.mu.Lock()
	if n := e.sessions.all.confirmed.Len(); n != 0 {
		t.Errorf("%d clients are known before any has spoken after a reply", n)
	}
	e.sessions.mu.Unlock()
	before := known.Ask(t)
	proxytest.DialUDP(t, s.addr).Ask(t)
	if got := known.Ask(t); got != before {
		t.Errorf("the known client had %v and now has %v", before, got)
	}
}

// The limit for all holds across services, and a service at peace is not made to pay for another.
func TestTheLimitForAllEvictsTheOldestStrangerOfAnyService(t *testing.T) {
	e := newUDPEngine(t, Config{MaxUDPSessions: 3, MaxUDPSessionsPerService: 2})
	a, b := serveUDP(t, e, identity(t, "a")), serveUDP(t, e, identity(t, "b"))
	proxytest.DialUDP(t, a.addr).Ask(t) // the oldest of all
	proxytest.DialUDP(t, b.addr).Ask(t)
	proxytest.DialUDP(t, b.addr).Ask(t)
	counts := func(inA, inB int) {
		t.Helper()
		if a.sessionCount() != inA || b.sessionCount() != inB {
			t.Errorf("%d and %d sessions; want %d and %d", a.sessionCount(), b.sessionCount(), inA, inB)
		}
	}
	proxytest.DialUDP(t, b.addr).Ask(t) // over b's own limit
	counts(1, 2)
	proxytest.DialUDP(t, a.addr).Ask(t) // over the limit for all: a's first goes
	counts(1, 2)
	proxytest.DialUDP(t, a.addr).Ask(t) // and now one of b is the oldest
	counts(2, 1)
}

// Everything at once, for the race detector: clients come and go while endpoints do, and refuse.
func TestUDPUnderChangeOfEverything(t *testing.T) {
	e := newUDPEngine(t, Config{MaxUDPSessions: 8, UDPTimeout: 20 * time.Millisecond})
	s := serveUDP(t, e)
	s.setOf("heir", identity(t, "heir"))
	owners := []*claim{s.ownership.Load(), s.claim("heir")}
	steady, dead := identity(t, "steady"), deadUDP(t)
	stop, working := make(chan struct{}), sync.WaitGroup{}
	again := func(f func(i int)) {
		working.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					f(i)
				}
			}
		})
	}
	for range 4 {
		again(func(int) {
			client := proxytest.DialUDP(t, s.addr)
			for range 5 {
				client.Try(2 * time.Millisecond)
			}
			client.Close()
		})
	}
	again(func(i int) {
		s.set([][]registry.Addr{{steady}, {dead, steady}, {dead}, {steady, dead}, {}}[i%5]...)
		time.Sleep(time.Millisecond)
	})
	again(func(i int) {
		s.ownership.Store(owners[(i+1)%2])
		s.disown(owners[i%2])
		time.Sleep(5 * time.Millisecond)
	})
	time.Sleep(time.Second)
	close(stop)
	working.Wait()
	s.set(steady)
	proxytest.DialUDP(t, s.addr).AskOften(t)
	s.close()
	if got := e.sessions.all.unconfirmed.Len() + e.sessions.all.confirmed.Len(); got != 0 {
		t.Errorf("%d sessions are still counted", got)
	}
	if got := e.sessions.waitingBytes.Load(); got != 0 {
		t.Errorf("%d bytes are taken for waiting", got)
	}
}
