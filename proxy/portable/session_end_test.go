//go:build linux

package portable

import (
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// told returns a Config that hands on what it is told of endings.
func told(cfg engine.Config) (engine.Config, <-chan traffic.Ending) {
	endings := make(chan traffic.Ending, 1000)
	cfg.Ended = func(e traffic.Ending) { endings <- e }
	return cfg, endings
}

func TestEverySessionEndsWithItsReason(t *testing.T) {
	for _, c := range []struct {
		reason traffic.Reason
		cfg    engine.Config
		end    func(t *testing.T, e *Engine, s *udpService) // begins a session, and does what ends it
	}{
		{traffic.Idle, engine.Config{UDPTimeout: 50 * time.Millisecond}, func(t *testing.T, e *Engine, s *udpService) {
			proxytest.DialUDP(t, s.Addr).Ask(t)
		}},
		{traffic.DialFailed, engine.Config{}, func(t *testing.T, e *Engine, s *udpService) {
			s.Set(enginetest.DeadUDP(t), enginetest.DeadUDP(t))
			proxytest.DialUDP(t, s.Addr).Write([]byte("x"))
		}},
		{traffic.OwnListener, engine.Config{}, func(t *testing.T, e *Engine, s *udpService) {
			s.Set(proxytest.At(s.Addr))
			proxytest.DialUDP(t, s.Addr).Write([]byte("x"))
		}},
		{traffic.EndpointNotAllowed, engine.Config{AllowedEndpoints: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, func(t *testing.T, e *Engine, s *udpService) {
			proxytest.DialUDP(t, s.Addr).Write([]byte("x"))
		}},
		{traffic.DescriptorLimit, engine.Config{}, func(t *testing.T, e *Engine, s *udpService) {
			defer leaveNoDescriptors(t)()
			s.begin(admit.SessionKey{Client: netip.MustParseAddrPort("127.0.0.1:9")}, []byte("hello"))
		}},
		{traffic.NoEndpoints, engine.Config{}, func(t *testing.T, e *Engine, s *udpService) {
			s.Set() // just when the session has been let in
			s.letIn(admit.SessionKey{}, s.Ownership.Load()).run(nil, nil)
		}},
		{traffic.EndpointRemoved, engine.Config{}, func(t *testing.T, e *Engine, s *udpService) {
			client := proxytest.DialUDP(t, s.Addr)
			client.Ask(t)
			s.Set()
			client.Write([]byte("lost"))
		}},
		{traffic.Evicted, engine.Config{MaxUDPSessions: 1, UDPTimeout: time.Hour}, func(t *testing.T, e *Engine, s *udpService) {
			proxytest.DialUDP(t, s.Addr).Ask(t)
			proxytest.DialUDP(t, s.Addr).Ask(t)
		}},
		{traffic.ServiceRemoved, engine.Config{}, func(t *testing.T, e *Engine, s *udpService) {
			proxytest.DialUDP(t, s.Addr).Ask(t)
			s.SetOf("heir", enginetest.Identity(t, "heir"))
			s.Ownership.Store(s.Claim("heir"))
			s.OwnerChanged()
		}},
		{traffic.ServiceRemoved, engine.Config{}, func(t *testing.T, e *Engine, s *udpService) {
			proxytest.DialUDP(t, s.Addr).Ask(t)
			s.Ownership.Load().Lifetime.End(removal.Policy{}, traffic.ServiceRemoved, 0)
			s.Close()
		}},
		{traffic.SourceNotAllowed, engine.Config{}, func(t *testing.T, e *Engine, s *udpService) {
			proxytest.DialUDP(t, s.Addr).Ask(t)
			narrower := *s.Ownership.Load()
			narrower.Terms = &registry.Terms{SourceRanges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
			s.Ownership.Store(&narrower)
			s.OwnerChanged()
		}},
		{traffic.Shutdown, engine.Config{}, func(t *testing.T, e *Engine, s *udpService) {
			proxytest.DialUDP(t, s.Addr).Ask(t)
			s.Close()
		}},
		{traffic.Shutdown, engine.Config{}, func(t *testing.T, e *Engine, s *udpService) {
			proxytest.DialUDP(t, s.Addr).Ask(t)
			e.Cut()
		}},
	} {
		t.Run(c.reason.String(), func(t *testing.T) {
			cfg, endings := told(c.cfg)
			e := newUDPEngine(t, cfg)
			s := serveUDP(t, e, enginetest.Identity(t, "1"))
			owner := s.Ownership.Load()
			c.end(t, e, s)
			ending := proxytest.Receive(t, endings, "the ending")
			if ending.Reason != c.reason || ending.Service != owner.Key || ending.Listener.Protocol != registry.UDP {
				t.Errorf("told of %+v; want %s of %s over UDP", ending, c.reason, owner.Key)
			}
			if got := owner.Tally.Totals().Ended[c.reason]; got != 1 {
				t.Errorf("%d sessions ended with %s; want 1", got, c.reason)
			}
			s.Close()
			if got := owner.Tally.Active.Load(); got != 0 {
				t.Errorf("%d sessions are still active", got)
			}
		})
	}
}

// leaveNoDescriptors makes the system refuse this process any more, until restore is called.
func leaveNoDescriptors(t *testing.T) (restore func()) {
	t.Helper()
	var before unix.Rlimit
	enginetest.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	enginetest.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: before.Max}))
	return func() { enginetest.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) }
}

func TestAnEndingTellsWhatTheSessionWas(t *testing.T) {
	cfg, endings := told(engine.Config{})
	e := newUDPEngine(t, cfg)
	one, two := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP), proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP)
	s := serveUDP(t, e, one.Addr, two.Addr)
	client := proxytest.DialUDP(t, s.Addr)
	began := time.Now()
	for _, something := range []string{"four", "", "sixsix"} {
		if _, err := client.Exchange([]byte(something)); err != nil {
			t.Fatal(err)
		}
	}
	s.Set(two.Addr)
	client.Exchange([]byte("four"))
	s.Close()
	got := proxytest.Receive(t, endings, "the ending")
	if got.Began.Before(began) || got.Began.Add(got.Duration).After(time.Now()) || got.Dialled <= 0 || got.Dialled > got.Duration {
		t.Errorf("began at %v, took %v, and %v until the first endpoint; the test began at %v", got.Began, got.Duration, got.Dialled, began)
	}
	want := traffic.Ending{
		Listener: enginetest.UDPPort(s.Addr.Port()), Service: s.Ownership.Load().Key,
		Client: client.LocalAddr().(*net.UDPAddr).AddrPort(), Endpoint: two.Addr,
		Began: got.Began, Duration: got.Duration, Dialled: got.Dialled,
		Attempts: 2, Sent: 14, Received: 14, Reason: traffic.Shutdown,
	}
	if got != want {
		t.Errorf("told of %+v; want %+v", got, want)
	}
	totals := s.Ownership.Load().Tally.Totals()
	if totals.Sent != 14 || totals.Received != 14 || totals.SentDatagrams != 4 || totals.ReceivedDatagrams != 4 || totals.MovedSessions != 1 || totals.DialFailures != 0 {
		t.Errorf("counted %+v; want 14 bytes and 4 datagrams each way, and 1 move", totals)
	}
}

func TestEndpointsKnowTheirSessions(t *testing.T) {
	e := newUDPEngine(t, engine.Config{})
	dead := enginetest.DeadUDP(t)
	s := serveUDP(t, e, dead, enginetest.Identity(t, "2"))
	for range 3 {
		proxytest.DialUDP(t, s.Addr).Ask(t)
	}
	status := func(i int) rotation.EndpointStatus { return s.Ownership.Load().Rotation.Endpoints()[i].Status() }
	proxytest.Eventually(t, func() bool { return status(0).Active == 0 }, "no session at the endpoint that refuses")
	if got := status(0); got.Failures == 0 || got.EjectedUntil.IsZero() {
		t.Errorf("the endpoint that refuses: %+v; want failures, and it ejected", got)
	}
	if got := status(1); got.Active != 3 || got.Connections != 3 || got.Failures != 0 {
		t.Errorf("the endpoint that answers: %+v; want 3 sessions", got)
	}
	if tally := s.Ownership.Load().Tally; tally.DialFailures.Load() != 1 || tally.Moved.Load() != 0 {
		t.Errorf("%d dial failures, %d moves; want 1 and 0: who refuses at once has carried nothing", tally.DialFailures.Load(), tally.Moved.Load())
	}
	s.Close()
	if got := status(1); got.Active != 0 || got.Connections != 3 {
		t.Errorf("after all have ended: %+v; want 3 sessions that were", got)
	}
}

// Who is let in stays when the terms of the service change, as long as they still let it in.
func TestNewTermsEndOnlySessionsThatTheyDoNotAllow(t *testing.T) {
	cfg, endings := told(engine.Config{BindAddress: netip.IPv4Unspecified()})
	e := newUDPEngine(t, cfg)
	s := serveUDP(t, e, enginetest.Identity(t, "1"))
	at := proxytest.On(s.Addr.Port())
	inside := proxytest.DialUDPFrom(t, netip.MustParseAddr("127.1.0.1"), at)
	outside := proxytest.DialUDPFrom(t, netip.MustParseAddr("127.2.0.1"), at)
	before := inside.Ask(t)
	outside.Ask(t)
	for range 3 { // also for a session that began two claims ago
		narrower := *s.Ownership.Load()
		narrower.Terms = &registry.Terms{SourceRanges: []netip.Prefix{netip.MustParsePrefix("127.1.0.0/16")}}
		s.Ownership.Store(&narrower)
		s.OwnerChanged()
	}
	if got := proxytest.Receive(t, endings, "one session to end"); got.Reason != traffic.SourceNotAllowed || got.Client.Addr() != netip.MustParseAddr("127.2.0.1") {
		t.Errorf("told of %+v; want the session of the client outside", got)
	}
	if got := inside.Ask(t); got != before {
		t.Errorf("the client inside had %v and now has %v", before, got)
	}
	outside.Write([]byte("again"))
	s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropSource: 1})
	s.SetOf("heir", enginetest.Identity(t, "heir"))
	s.Ownership.Store(s.Claim("heir"))
	s.OwnerChanged() // and it goes with the last of them
	if got := proxytest.Receive(t, endings, "the other session to end"); got.Reason != traffic.ServiceRemoved {
		t.Errorf("told of %+v; want %s", got, traffic.ServiceRemoved)
	}
}

// A session may be over before its own goroutine has begun.
func TestASessionThatEndsBeforeItRunsLeavesNothingOpen(t *testing.T) {
	e := newUDPEngine(t, engine.Config{})
	s := serveUDP(t, e, enginetest.Identity(t, "1"))
	sockets := proxytest.Sockets(t)
	for range 10 {
		session := s.letIn(admit.SessionKey{}, s.Ownership.Load())
		first, _ := session.Next(0)
		b := session.try(first)
		session.stop(traffic.Evicted)
		session.run(nil, b)
	}
	if got := proxytest.Sockets(t); got != sockets {
		t.Errorf("%d sockets; want %d", got, sockets)
	}
	if got := s.Ownership.Load().Rotation.Endpoints()[0].Status().Active; got != 0 {
		t.Errorf("the endpoint is said to have %d sessions", got)
	}
}

// To be refused a session must not leave anything behind: strangers can be refused as often as they like.
func TestARefusedClientLeavesNothingBehind(t *testing.T) {
	e := newUDPEngine(t, engine.Config{MaxUDPSessionsPerService: 1, MaxNewUDPSessions: 1_000_000_000})
	s := serveUDP(t, e, enginetest.Identity(t, "1"))
	known := proxytest.DialUDP(t, s.Addr)
	known.Ask(t)
	known.Ask(t)
	client := func(n int) admit.SessionKey {
		return admit.SessionKey{Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 9)}
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
	s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropServiceLimit: many})
}
