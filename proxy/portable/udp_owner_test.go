//go:build linux

package portable

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// What becomes of sessions when their port changes hands or is closed.

// A session that was evicted just before may still be busy with a reply.
func TestOwnerChangedWaitsForSessionsThatHadEndedBefore(t *testing.T) {
	busy := make(chan struct{})
	e := newUDPEngine(t, engine.Config{Ended: func(traffic.Ending) { <-busy }}) // stands for anything that takes long
	e.Resolver.Lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s := serveUDP(t, e, registry.Addr{Host: "slow.example", IP: netip.AddrPortFrom(netip.Addr{}, 53)})
	proxytest.DialUDP(t, s.Addr).Write([]byte("question"))
	proxytest.Eventually(t, func() bool { return s.sessionCount() == 1 }, "a session")
	s.mu.Lock()
	sessions := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	sessions[0].stop(traffic.Evicted)
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		s.Ownership.Store(s.Claim("heir"))
		s.OwnerChanged()
	}()
	select {
	case <-returned:
		t.Error("ownerChanged returned although a session was busy")
	case <-time.After(20 * time.Millisecond): // it would have taken microseconds
	}
	close(busy)
	proxytest.Receive(t, returned, "ownerChanged to return")
}

// The reader may have begun a session for the old owner, and not yet made it known, when the port
// changes hands: ownerChanged cannot see it then.
func TestASessionOfTheOldOwnerThatComesTooLateEnds(t *testing.T) {
	e := newUDPEngine(t, engine.Config{})
	s := serveUDP(t, e, enginetest.Identity(t, "1"))
	previous := s.Ownership.Load()
	begin := func() *session {
		e.Budget.TryAcquire(1)
		session := newSession(s.udpSocket)
		s.Begin(&session.Session, session, previous, admit.SessionKey{})
		return session
	}
	finishes := func(when string, session *session) {
		t.Helper()
		s.add(session)
		if session.ctx.Err() == nil || s.sessionCount() != 0 {
			t.Errorf("after %s a late session goes on", when)
		}
		session.stop(traffic.Idle)
		if session.forward([]byte("late")) {
			t.Errorf("after %s a late session takes datagrams", when)
		}
		session.run(nil, nil)
	}
	late := begin()
	s.Ownership.Store(s.Claim("heir"))
	s.OwnerChanged()
	finishes("ownerChanged", late)
	s.Ownership.Store(previous)
	late = begin()
	s.Close()
	finishes("close", late)
}

func TestClosingFreesThePortAndTheSessions(t *testing.T) { // D43
	e := newUDPEngine(t, engine.Config{})
	s := serveUDP(t, e, enginetest.Identity(t, "1"))
	sockets := proxytest.Sockets(t) // of them one the port's
	for range 50 {
		clients := []*proxytest.UDPClient{proxytest.DialUDP(t, s.Addr), proxytest.DialUDP(t, s.Addr)}
		for _, client := range clients {
			client.Ask(t)
			client.Write([]byte("and another"))
		}
		s.Close()
		s.Close() // safe twice
		for _, client := range clients {
			client.Close()
		}
		if got := proxytest.Sockets(t); got != sockets-1 {
			t.Fatalf("%d sockets are left; want %d", got, sockets-1)
		}
		s.open(t, e, s.Addr.Port())
	}
}

func TestEverythingEndsWithTheEngine(t *testing.T) {
	e := newUDPEngine(t, engine.Config{})
	e.Resolver.Lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	named := registry.Addr{Host: "slow.example", IP: netip.AddrPortFrom(netip.Addr{}, 53)}
	s := serveUDP(t, e, enginetest.Identity(t, "1"), named)
	proxytest.DialUDP(t, s.Addr).Ask(t)
	proxytest.DialUDP(t, s.Addr).Write([]byte("waits for a name"))
	proxytest.Eventually(t, func() bool { return s.sessionCount() == 2 }, "two sessions")
	e.Cut()
	e.Work.Wait()
	if got := s.sessionCount(); got != 0 {
		t.Errorf("%d sessions are left", got)
	}
}
