//go:build linux

package proxy

import (
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// told returns a Config that hands on what it is told of endings.
func told(cfg Config) (Config, <-chan Ending) {
	endings := make(chan Ending, 1000)
	cfg.Ended = func(e Ending) { endings <- e }
	return cfg, endings
}

func TestEverySessionEndsWithItsReason(t *testing.T) {
	for _, c := range []struct {
		reason Reason
		cfg    Config
		end    func(t *testing.T, e *portable, s *udpService) // begins a session, and does what ends it
	}{
		{Idle, Config{UDPTimeout: 50 * time.Millisecond}, func(t *testing.T, e *portable, s *udpService) {
			proxytest.DialUDP(t, s.addr).Ask(t)
		}},
		{DialFailed, Config{}, func(t *testing.T, e *portable, s *udpService) {
			s.set(deadUDP(t), deadUDP(t))
			proxytest.DialUDP(t, s.addr).Write([]byte("x"))
		}},
		{OwnListener, Config{}, func(t *testing.T, e *portable, s *udpService) {
			s.set(proxytest.At(s.addr))
			proxytest.DialUDP(t, s.addr).Write([]byte("x"))
		}},
		{EndpointNotAllowed, Config{AllowedEndpoints: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, func(t *testing.T, e *portable, s *udpService) {
			proxytest.DialUDP(t, s.addr).Write([]byte("x"))
		}},
		{DescriptorLimit, Config{}, func(t *testing.T, e *portable, s *udpService) {
			defer leaveNoDescriptors(t)()
			s.begin(sessionKey{client: netip.MustParseAddrPort("127.0.0.1:9")}, []byte("hello"))
		}},
		{NoEndpoints, Config{}, func(t *testing.T, e *portable, s *udpService) {
			s.set() // just when the session has been let in
			e.budget.tryAcquire(1)
			begun := newSession(s.udpSocket, sessionKey{}, s.ownership.Load())
			s.add(begun)
			begun.choice = s.ownership.Load().choose(netip.Addr{})
			begun.run(nil, nil)
		}},
		{EndpointRemoved, Config{}, func(t *testing.T, e *portable, s *udpService) {
			client := proxytest.DialUDP(t, s.addr)
			client.Ask(t)
			s.set()
			client.Write([]byte("lost"))
		}},
		{Evicted, Config{MaxUDPSessions: 1, UDPTimeout: time.Hour}, func(t *testing.T, e *portable, s *udpService) {
			proxytest.DialUDP(t, s.addr).Ask(t)
			proxytest.DialUDP(t, s.addr).Ask(t)
		}},
		{ServiceRemoved, Config{}, func(t *testing.T, e *portable, s *udpService) {
			proxytest.DialUDP(t, s.addr).Ask(t)
			s.setOf("heir", identity(t, "heir"))
			s.ownership.Store(s.claim("heir"))
			s.ownerChanged()
		}},
		{ServiceRemoved, Config{}, func(t *testing.T, e *portable, s *udpService) {
			proxytest.DialUDP(t, s.addr).Ask(t)
			s.ownership.Load().tenure.end(Removal{}, ServiceRemoved)
			s.close()
		}},
		{SourceNotAllowed, Config{}, func(t *testing.T, e *portable, s *udpService) {
			proxytest.DialUDP(t, s.addr).Ask(t)
			narrower := *s.ownership.Load()
			narrower.sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
			s.ownership.Store(&narrower)
			s.ownerChanged()
		}},
		{Shutdown, Config{}, func(t *testing.T, e *portable, s *udpService) {
			proxytest.DialUDP(t, s.addr).Ask(t)
			s.close()
		}},
		{Shutdown, Config{}, func(t *testing.T, e *portable, s *udpService) {
			proxytest.DialUDP(t, s.addr).Ask(t)
			e.cut()
		}},
	} {
		t.Run(c.reason.String(), func(t *testing.T) {
			cfg, endings := told(c.cfg)
			e := newUDPEngine(t, cfg)
			s := serveUDP(t, e, identity(t, "1"))
			owner := s.ownership.Load()
			c.end(t, e, s)
			ending := proxytest.Receive(t, endings, "the ending")
			if ending.Reason != c.reason || ending.Service != owner.key || ending.Protocol != registry.UDP {
				t.Errorf("told of %+v; want %s of %s over UDP", ending, c.reason, owner.key)
			}
			if got := owner.tally.endings()[c.reason]; got != 1 {
				t.Errorf("%d sessions ended with %s; want 1", got, c.reason)
			}
			s.close()
			if got := owner.tally.active.Load(); got != 0 {
				t.Errorf("%d sessions are still active", got)
			}
		})
	}
}

// leaveNoDescriptors makes the system refuse this process any more, until restore is called.
func leaveNoDescriptors(t *testing.T) (restore func()) {
	t.Helper()
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: before.Max}))
	return func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) }
}

func TestAnEndingTellsWhatTheSessionWas(t *testing.T) {
	cfg, endings := told(Config{})
	e := newUDPEngine(t, cfg)
	one, two := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP), proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP)
	s := serveUDP(t, e, one.Addr, two.Addr)
	client := proxytest.DialUDP(t, s.addr)
	began := time.Now()
	for _, something := range []string{"four", "", "sixsix"} {
		if _, err := client.Exchange([]byte(something)); err != nil {
			t.Fatal(err)
		}
	}
	s.set(two.Addr)
	client.Exchange([]byte("four"))
	s.close()
	got := proxytest.Receive(t, endings, "the ending")
	if got.Began.Before(began) || got.Began.Add(got.Duration).After(time.Now()) || got.Dialled <= 0 || got.Dialled > got.Duration {
		t.Errorf("began at %v, took %v, and %v until the first endpoint; the test began at %v", got.Began, got.Duration, got.Dialled, began)
	}
	want := Ending{
		Protocol: registry.UDP, Service: s.ownership.Load().key, Port: s.addr.Port(),
		Client: client.LocalAddr().(*net.UDPAddr).AddrPort(), Endpoint: two.Addr,
		Began: got.Began, Duration: got.Duration, Dialled: got.Dialled,
		Attempts: 2, Sent: 14, Received: 14, Reason: Shutdown,
	}
	if got != want {
		t.Errorf("told of %+v; want %+v", got, want)
	}
	totals := s.ownership.Load().tally.totals()
	if totals.Sent != 14 || totals.Received != 14 || totals.SentDatagrams != 4 || totals.ReceivedDatagrams != 4 || totals.MovedSessions != 1 || totals.DialFailures != 0 {
		t.Errorf("counted %+v; want 14 bytes and 4 datagrams each way, and 1 move", totals)
	}
}

func TestEndpointsKnowTheirSessions(t *testing.T) {
	e := newUDPEngine(t, Config{})
	dead := deadUDP(t)
	s := serveUDP(t, e, dead, identity(t, "2"))
	for range 3 {
		proxytest.DialUDP(t, s.addr).Ask(t)
	}
	status := func(i int) EndpointStatus { return s.ownership.Load().rotation.awake().endpoints[i].status() }
	proxytest.Eventually(t, func() bool { return status(0).Active == 0 }, "no session at the endpoint that refuses")
	if got := status(0); got.Failures == 0 || got.DownUntil.IsZero() {
		t.Errorf("the endpoint that refuses: %+v; want failures, and it passed over", got)
	}
	if got := status(1); got.Active != 3 || got.Connections != 3 || got.Failures != 0 {
		t.Errorf("the endpoint that answers: %+v; want 3 sessions", got)
	}
	if tally := s.ownership.Load().tally; tally.dialFailures.Load() != 1 || tally.moved.Load() != 0 {
		t.Errorf("%d dial failures, %d moves; want 1 and 0: who refuses at once has carried nothing", tally.dialFailures.Load(), tally.moved.Load())
	}
	s.close()
	if got := status(1); got.Active != 0 || got.Connections != 3 {
		t.Errorf("after all have ended: %+v; want 3 sessions that were", got)
	}
}

// Who is let in stays when the terms of the service change, as long as they still let it in.
func TestNewTermsEndOnlySessionsThatTheyDoNotAllow(t *testing.T) {
	cfg, endings := told(Config{BindAddress: netip.IPv4Unspecified()})
	e := newUDPEngine(t, cfg)
	s := serveUDP(t, e, identity(t, "1"))
	at := proxytest.On(s.addr.Port())
	inside := proxytest.DialUDPFrom(t, netip.MustParseAddr("127.1.0.1"), at)
	outside := proxytest.DialUDPFrom(t, netip.MustParseAddr("127.2.0.1"), at)
	before := inside.Ask(t)
	outside.Ask(t)
	for range 3 { // also for a session that began two claims ago
		narrower := *s.ownership.Load()
		narrower.sources = []netip.Prefix{netip.MustParsePrefix("127.1.0.0/16")}
		s.ownership.Store(&narrower)
		s.ownerChanged()
	}
	if got := proxytest.Receive(t, endings, "one session to end"); got.Reason != SourceNotAllowed || got.Client.Addr() != netip.MustParseAddr("127.2.0.1") {
		t.Errorf("told of %+v; want the session of the client outside", got)
	}
	if got := inside.Ask(t); got != before {
		t.Errorf("the client inside had %v and now has %v", before, got)
	}
	outside.Write([]byte("again"))
	s.hasDropped(t, map[DropReason]uint64{dropSource: 1})
	s.setOf("heir", identity(t, "heir"))
	s.ownership.Store(s.claim("heir"))
	s.ownerChanged() // and it goes with the last of them
	if got := proxytest.Receive(t, endings, "the other session to end"); got.Reason != ServiceRemoved {
		t.Errorf("told of %+v; want %s", got, ServiceRemoved)
	}
}

// A session may be over before its own goroutine has begun.
func TestASessionThatEndsBeforeItRunsLeavesNothingOpen(t *testing.T) {
	e := newUDPEngine(t, Config{})
	s := serveUDP(t, e, identity(t, "1"))
	sockets := proxytest.Sockets(t)
	for range 10 {
		e.budget.tryAcquire(1)
		session := newSession(s.udpSocket, sessionKey{}, s.ownership.Load())
		s.add(session)
		session.choice = s.ownership.Load().choose(netip.Addr{})
		first, _ := session.choice.next()
		b := session.try(first)
		session.stop(Evicted)
		session.run(nil, b)
	}
	if got := proxytest.Sockets(t); got != sockets {
		t.Errorf("%d sockets; want %d", got, sockets)
	}
	if got := s.ownership.Load().rotation.awake().endpoints[0].experience().active.Load(); got != 0 {
		t.Errorf("the endpoint is said to have %d sessions", got)
	}
}

// To be refused a session must not leave anything behind: strangers can be refused as often as they like.
func TestARefusedClientLeavesNothingBehind(t *testing.T) {
	e := newUDPEngine(t, Config{MaxUDPSessionsPerService: 1, MaxNewUDPSessions: 1_000_000_000})
	s := serveUDP(t, e, identity(t, "1"))
	known := proxytest.DialUDP(t, s.addr)
	known.Ask(t)
	known.Ask(t)
	client := func(n int) sessionKey {
		return sessionKey{client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 9)}
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	const many = 20_000
	for n := range many {
		if s.begin(client(n), []byte("hello")) != nil {
			t.Fatal("a stranger was given the room of a known client")
		}
	}
	if grown := int64(heap()) - int64(before); grown > many*50 {
		t.Errorf("%d clients that were refused left %d bytes behind", many, grown)
	}
	s.hasDropped(t, map[DropReason]uint64{dropServiceLimit: many})
}
