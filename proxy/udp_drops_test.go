//go:build linux

package proxy

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// What is dropped, and whose fault that is.

func TestEveryDropHasItsReason(t *testing.T) {
	t.Run("no endpoints", func(t *testing.T) {
		onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
			s := e.serve(t)
			proxytest.DialUDP(t, s.addr).Write([]byte("lost"))
			s.hasDropped(t, map[DropReason]uint64{dropNoEndpoints: 1})
			if n := s.ownership.Load().tally.endings()[NoEndpoints]; n != 0 {
				t.Errorf("%d sessions were begun for it", n)
			}
		})
	})
	t.Run("own listener", func(t *testing.T) {
		onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
			s := e.serve(t)
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
	})
	t.Run("endpoint not allowed", func(t *testing.T) {
		onBothEngines(t, Config{AllowedEndpoints: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}}, func(t *testing.T, e *udpEngine) {
			s := e.serve(t, identity(t, "elsewhere"))
			proxytest.DialUDP(t, s.addr).Write([]byte("lost"))
			s.hasDropped(t, map[DropReason]uint64{dropNotAllowed: 1})
			s.set(identity(t, "elsewhere"), proxytest.ServeUDP(t, "127.0.0.2:0", proxytest.IdentifyUDP("well")).Addr)
			for range 4 {
				if got := proxytest.DialUDP(t, s.addr).Ask(t).Name; got != "well" {
					t.Errorf("answered by %s", got)
				}
			}
		})
	})
	t.Run("client not allowed", func(t *testing.T) {
		onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
			s := e.serve(t, identity(t, "1"))
			narrower := *s.ownership.Load()
			narrower.sources = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
			s.ownership.Store(&narrower)
			proxytest.DialUDP(t, s.addr).Write([]byte("lost"))
			s.hasDropped(t, map[DropReason]uint64{dropSource: 1})
			proxytest.DialUDPFrom(t, netip.MustParseAddr("127.0.0.2"), s.addr).Ask(t)
		})
	})
	t.Run("session limit", func(t *testing.T) {
		onBothEngines(t, Config{MaxUDPSessions: 1, MaxUDPSessionsPerService: 2}, func(t *testing.T, e *udpEngine) {
			s := e.serve(t, identity(t, "1"))
			known := proxytest.DialUDP(t, s.addr)
			known.Ask(t)
			known.Ask(t)
			proxytest.DialUDP(t, s.addr).Write([]byte("lost"))
			s.hasDropped(t, map[DropReason]uint64{dropSessionLimit: 1})
		})
	})
	t.Run("session limit of a service", func(t *testing.T) {
		onBothEngines(t, Config{MaxUDPSessionsPerService: 1}, func(t *testing.T, e *udpEngine) {
			s := e.serve(t, identity(t, "1"))
			known := proxytest.DialUDP(t, s.addr)
			known.Ask(t)
			known.Ask(t)
			proxytest.DialUDP(t, s.addr).Write([]byte("lost"))
			s.hasDropped(t, map[DropReason]uint64{dropServiceLimit: 1})
			known.Ask(t)
		})
	})
	t.Run("out of descriptors", func(t *testing.T) {
		onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
			s := e.serve(t, identity(t, "1"))
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
		onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
			s := e.serve(t, identity(t, "1"))
			client := proxytest.DialUDP(t, s.addr)
			client.Ask(t)
			const many = 2000
			sendMany := func() {
				for range many {
					client.Write(make([]byte, 100))
				}
			}
			switch s := s.socket.(type) { // nothing can be read meanwhile, but one datagram
			case *udpSocket:
				must(t, s.conn.SetReadBuffer(1<<16))
				s.mu.Lock()
				sendMany()
				s.mu.Unlock()
			case *epollUDP:
				must(t, unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<16))
				s.loop.call(sendMany)
			}
			client.AskOften(t)
			client.AskOften(t) // what is counted once stays counted once
			sent := s.ownership.Load().tally.datagramsSent.Load()
			if lost := s.dropped()[dropQueueFull]; lost == 0 || lost+sent < many || lost+sent > many+20 {
				t.Errorf("of %d datagrams %d were sent on, and %d counted as lost", many, sent, lost)
			}
		})
	})

	t.Run("client unreachable", func(t *testing.T) {
		onBothEngines(t, Config{BindAddress: netip.IPv4Unspecified()}, func(t *testing.T, e *udpEngine) {
			server := proxytest.ServeUDP(t, "[::1]:0", func([]byte, netip.AddrPort) []byte { return make([]byte, 65527) })
			s := e.serve(t, server.Addr) // which answers more than the client's family can hold
			proxytest.DialUDP(t, proxytest.On(s.addr.Port())).Write([]byte("question"))
			s.hasDropped(t, map[DropReason]uint64{dropClient: 1})
		})
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
	if s.ownership.Load().rotation.awake().endpoints[0].down(registry.UDP) {
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
