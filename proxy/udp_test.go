//go:build linux

package proxy

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A udpService is one UDP port of the portable engine, and the service that owns it.
type udpService struct {
	*udpSocket
	udpRecord
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
		e.drain(context.Background())
		if !e.budget.tryAcquire(e.budget.clients) {
			t.Error("not all descriptors were given back to the budget")
		}
	})
	return e
}

// serveUDP opens a port of e for a service with these endpoints.
func serveUDP(t testing.TB, e *portable, endpoints ...registry.Addr) *udpService {
	t.Helper()
	s := new(udpService)
	s.init(endpoints...)
	s.open(t, e, 0)
	return s
}

func (s *udpService) open(t testing.TB, e *portable, port uint16) {
	t.Helper()
	opened, err := e.listen(udpPort(port), &s.ownership)
	if err != nil {
		t.Fatal(err)
	}
	s.udpSocket = opened.(*udpSocket)
	t.Cleanup(s.close)
	port = s.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	e.resolver.own.add(portID{registry.UDP, port})
	s.addr = netip.AddrPortFrom(e.cfg.BindAddress, port)
}

func (s *udpService) sessionCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
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
	onBothEngines(t, Config{BindAddress: netip.IPv6Loopback()}, func(t *testing.T, e *udpEngine) {
		s := e.serve(t, proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP).Addr)
		client := proxytest.DialUDP(t, s.addr)
		if _, err := client.Write(make([]byte, 65508)); err != nil {
			t.Fatal(err)
		}
		s.hasDropped(t, map[DropReason]uint64{dropTooLong: 1})
		if got, err := client.Exchange([]byte("short")); err != nil || string(got) != "short" {
			t.Errorf("got %q, %v", got, err)
		}
		if s.ownership.Load().rotation.awake().endpoints[0].down(registry.UDP) {
			t.Error("the endpoint was blamed")
		}
	})
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
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
		s := e.serve(t, identity(t, "1"), identity(t, "2"), identity(t, "3"))
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
	})
}

// D40: v0.4 set the timer after the first successful write, so such a session never ended.
func TestASilentSessionEndsWhetherOrNotItWasEverAnswered(t *testing.T) {
	onBothEngines(t, Config{UDPTimeout: 100 * time.Millisecond}, func(t *testing.T, e *udpEngine) {
		mute := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
		s := e.serve(t, identity(t, "1"), mute.Addr)
		sockets := proxytest.Sockets(t)
		answered, ignored := proxytest.DialUDP(t, s.addr), proxytest.DialUDP(t, s.addr)
		answered.Ask(t)
		ignored.Write([]byte("is anybody there?"))
		proxytest.Eventually(t, func() bool { return mute.Received() == 1 }, "the second session")
		proxytest.Eventually(t, func() bool { return s.sessionCount() == 0 && proxytest.Sockets(t) == sockets+2 },
			"all sessions gone")
	})
}

func TestASessionStaysWhileOneSideSpeaks(t *testing.T) {
	const timeout = time.Second
	onBothEngines(t, Config{UDPTimeout: timeout}, func(t *testing.T, e *udpEngine) {
		mute := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
		server := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("2"))
		s := e.serve(t, mute.Addr, server.Addr)
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
	})
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
		s.ownerChanged()
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
