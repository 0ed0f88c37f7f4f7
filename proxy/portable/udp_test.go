//go:build linux

package portable

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A udpService is one UDP port of the portable engine, and the service that owns it.
type udpService struct {
	*udpSocket
	enginetest.UDPRecord
}

// newUDPEngine returns an engine that ends with the test, and leaves nothing behind.
func newUDPEngine(t testing.TB, cfg engine.Config) *Engine {
	t.Helper()
	proxytest.NothingLeaks(t)
	if !cfg.BindAddress.IsValid() {
		cfg.BindAddress = proxytest.Loopback
	}
	cfg = cfg.WithDefaults()
	e := New(cfg, admit.NewOwnPorts(cfg.BindAddress))
	t.Cleanup(func() {
		e.Cut()
		e.Drain(context.Background())
		if !e.Budget.TryAcquire(e.Budget.Clients) {
			t.Error("not all descriptors were given back to the budget")
		}
	})
	return e
}

// serveUDP opens a port of e for a service with these endpoints.
func serveUDP(t testing.TB, e *Engine, endpoints ...registry.Addr) *udpService {
	t.Helper()
	s := new(udpService)
	s.Init(endpoints...)
	s.open(t, e, 0)
	return s
}

func (s *udpService) open(t testing.TB, e *Engine, port uint16) {
	t.Helper()
	opened, err := e.Listen(enginetest.UDPPort(port), &s.Ownership)
	if err != nil {
		t.Fatal(err)
	}
	s.udpSocket = opened.(*udpSocket)
	t.Cleanup(s.Close)
	port = s.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	e.Resolver.Own.Add(enginetest.UDPPort(port))
	s.Addr = netip.AddrPortFrom(e.Cfg.BindAddress, port)
}

// Close closes the port. An endpoint may have it next. It is safe twice.
func (s *udpService) Close() {
	s.udpSocket.Close()
	s.engine.Resolver.Own.Remove(enginetest.UDPPort(s.Addr.Port()))
}

// letIn begins a session, which does not run yet.
func (s *udpService) letIn(key admit.SessionKey, owner *engine.Claim) *session {
	s.engine.Budget.TryAcquire(1)
	begun := newSession(s.udpSocket)
	s.Begin(&begun.Session, begun, owner, key)
	s.add(begun)
	return begun
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
			e := newUDPEngine(t, engine.Config{BindAddress: netip.MustParseAddr(c.loopback)})
			s := serveUDP(t, e, proxytest.ServeUDP(t, net.JoinHostPort(c.loopback, "0"), proxytest.EchoUDP).Addr)
			client := proxytest.DialUDP(t, s.Addr)
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
			e := newUDPEngine(t, engine.Config{BindAddress: netip.MustParseAddr(c.bind)})
			one := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("1"))
			two := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("2"))
			s := serveUDP(t, e, one.Addr, two.Addr)
			for i, ip := range c.ips {
				client := proxytest.DialUDP(t, netip.AddrPortFrom(netip.MustParseAddr(ip), s.Addr.Port()))
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
				if key.Client.Addr().Is4In6() || key.Local.Addr.Is4In6() {
					t.Errorf("an IPv4 client is known as %v", key)
				}
			}
			s.mu.Unlock()
			s.Set(two.Addr) // also after a move
			client := proxytest.DialUDP(t, netip.AddrPortFrom(netip.MustParseAddr(c.ips[0]), s.Addr.Port()))
			client.Ask(t)
		})
	}
}

// Everything at once, for the race detector: clients come and go while endpoints do, and refuse.
func TestUDPUnderChangeOfEverything(t *testing.T) {
	e := newUDPEngine(t, engine.Config{MaxUDPSessions: 8, UDPTimeout: 20 * time.Millisecond})
	s := serveUDP(t, e)
	s.SetOf("heir", enginetest.Identity(t, "heir"))
	owners := []*engine.Claim{s.Ownership.Load(), s.Claim("heir")}
	steady, dead := enginetest.Identity(t, "steady"), enginetest.DeadUDP(t)
	const handovers = 150 // of the port: as many changes as the test is long
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
			client := proxytest.DialUDP(t, s.Addr)
			for range 5 {
				client.Try(2 * time.Millisecond)
			}
			client.Close()
		})
	}
	again(func(i int) {
		s.Set([][]registry.Addr{{steady}, {dead, steady}, {dead}, {steady, dead}, {}}[i%5]...)
		time.Sleep(time.Millisecond)
	})
	for i := range handovers {
		s.Ownership.Store(owners[(i+1)%2])
		s.OwnerChanged()
		time.Sleep(5 * time.Millisecond)
	}
	close(stop)
	working.Wait()
	s.Set(steady)
	proxytest.DialUDP(t, s.Addr).AskOften(t)
	s.Close()
	if got := e.Sessions.Counted(); got != 0 {
		t.Errorf("%d sessions are still counted", got)
	}
	if got := e.Sessions.WaitingBytes.Load(); got != 0 {
		t.Errorf("%d bytes are taken for waiting", got)
	}
}
