//go:build linux

package proxy

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// What becomes of sessions when their port changes hands or is closed.

func TestAfterDisownNothingComesFromTheOldService(t *testing.T) {
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
		var sequence atomic.Int64
		stop, streaming := make(chan struct{}), sync.WaitGroup{}
		t.Cleanup(streaming.Wait)
		t.Cleanup(sync.OnceFunc(func() { close(stop) }))
		stream, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(proxytest.On(0)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stream.Close() })
		s := e.serve(t, proxytest.At(stream.LocalAddr().(*net.UDPAddr).AddrPort()))
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

		s.ownership.Store(s.claim("heir"))
		s.ownerChanged()
		last := sequence.Load() + 1 // numbered, and sent at any time from now on
		if got := s.sessionCount(); got != 0 {
			t.Errorf("%d sessions are left", got)
		}
		before := sequence.Load()
		proxytest.Eventually(t, func() bool { return sequence.Load() > before+1000 }, "a thousand more of the stream")
		client.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		<-done
		if got := <-heard; got > last {
			t.Errorf("number %d of the stream arrived; %d was sent last before ownerChanged returned", got, last)
		}
		if got := client.Ask(t).Name; got != "heir" {
			t.Errorf("answered by %s", got)
		}
	})
}

// A session that was evicted just before may still be busy with a reply.
func TestOwnerChangedWaitsForSessionsThatHadEndedBefore(t *testing.T) {
	busy := make(chan struct{})
	e := newUDPEngine(t, Config{Ended: func(Ending) { <-busy }}) // stands for anything that takes long
	e.resolver.lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s := serveUDP(t, e, registry.Addr{Host: "slow.example", IP: netip.AddrPortFrom(netip.Addr{}, 53)})
	proxytest.DialUDP(t, s.addr).Write([]byte("question"))
	proxytest.Eventually(t, func() bool { return s.sessionCount() == 1 }, "a session")
	s.mu.Lock()
	sessions := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	sessions[0].stop(Evicted)
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		s.ownership.Store(s.claim("heir"))
		s.ownerChanged()
	}()
	select {
	case <-returned:
		t.Error("ownerChanged returned although a session was busy")
	case <-time.After(20 * time.Millisecond): // it would have taken microseconds
	}
	close(busy)
	proxytest.Receive(t, returned, "ownerChanged to return")
}

// A client that speaks while its port changes hands is served by one owner or the other, and by the
// new one from when ownerChanged has returned.
func TestAClientThatSpeaksWhileItsPortChangesHandsFollows(t *testing.T) {
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
		s := e.serve(t, identity(t, "dns"))
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
			next := owners[(i+1)%2]
			s.ownership.Store(next)
			s.ownerChanged()
			if got := client.Ask(t).Name; got != next.key.Name.Name {
				t.Errorf("round %d: answered by %s; want %s", i, got, next.key)
			}
		}
		close(stop)
		speaking.Wait()
	})
}

// The reader may have begun a session for the old owner, and not yet made it known, when the port
// changes hands: ownerChanged cannot see it then.
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
	s.ownerChanged()
	finishes("ownerChanged", late)
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
