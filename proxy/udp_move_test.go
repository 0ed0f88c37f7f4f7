//go:build linux

package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// How a session gets from one endpoint to the next, and what becomes of its datagrams then.

func TestASessionLeavesAnEndpointThatIsGoneWithTheNextDatagram(t *testing.T) { // D42
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
		one, two := identity(t, "1"), identity(t, "2")
		s := e.serve(t, one, two)
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
	})
}

// It does so whether or not the first one has ever answered.
func TestASessionThatWasNeverAnsweredLeavesAnEndpointThatIsReplaced(t *testing.T) {
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
		one, two := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP), proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
		s := e.serve(t, one.Addr)
		client := proxytest.DialUDP(t, s.addr)
		client.Write([]byte("1"))
		proxytest.Eventually(t, func() bool { return one.Received() == 1 }, "a datagram at the first endpoint")
		s.set(two.Addr)
		client.Write([]byte("2"))
		proxytest.Eventually(t, func() bool { return two.Received() == 1 }, "a datagram at the second endpoint")
		s.hasDropped(t, map[DropReason]uint64{})
	})
}

func TestASessionWhoseEndpointsAreAllGoneEnds(t *testing.T) {
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
		one := identity(t, "1")
		s := e.serve(t, one)
		client := proxytest.DialUDP(t, s.addr)
		client.Ask(t)
		s.set()
		client.Write([]byte("lost"))
		s.hasDropped(t, map[DropReason]uint64{dropNoEndpoints: 1})
		proxytest.Eventually(t, func() bool { return s.sessionCount() == 0 }, "the session gone")
		s.set(one)
		client.Ask(t)
	})
}

// Nothing is lost with an endpoint that refuses, for it has not seen what it refused.
func TestWhatAnEndpointRefusedIsAnsweredByTheNext(t *testing.T) {
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
		dies := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("dies"))
		s := e.serve(t, dies.Addr, deadUDP(t), deadUDP(t), identity(t, "lives"))
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
		for _, ep := range s.ownership.Load().rotation.awake().endpoints[:3] {
			if !ep.down(registry.UDP) {
				t.Errorf("%v refused and is not passed over", ep.addr)
			}
		}
	})
}

// A session that only ever sends learns of a refusal, too, and moves for it.
func TestASessionThatIsNeverAnsweredMovesWhenRefused(t *testing.T) {
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
		dies := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
		lives := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
		s := e.serve(t, dies.Addr, lives.Addr)
		client := proxytest.DialUDP(t, s.addr)
		client.Write([]byte("1"))
		proxytest.Eventually(t, func() bool { return dies.Received() == 1 }, "a datagram at the first endpoint")
		dies.Close()
		for i := range int64(20) {
			client.Write([]byte("2"))
			proxytest.Eventually(t, func() bool { return lives.Received() == i+1 }, "datagram %d at the second endpoint", i+2)
		}
	})
}

// Where nothing is ever answered, an endpoint that has not refused for a while counts as reached: when
// it does refuse, others that refused before are offered again.
func TestASessionThatHasSettledIsOfferedAllEndpointsAnew(t *testing.T) {
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
		returns := proxytest.At(proxytest.On(proxytest.FreePort(t)))
		dies := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
		s := e.serve(t, returns, dies.Addr)
		client := proxytest.DialUDP(t, s.addr)
		client.Write([]byte("1"))
		proxytest.Eventually(t, func() bool { return dies.Received() == 1 }, "a datagram at the second endpoint")
		returned := proxytest.ServeUDP(t, returns.String(), proxytest.MuteUDP)
		switch s := s.socket.(type) { // a while later
		case *udpSocket:
			s.mu.Lock()
			for _, session := range s.sessions {
				session.mu.Lock()
				session.backend.began -= settleTime
				session.mu.Unlock()
			}
			s.mu.Unlock()
		case *epollUDP:
			s.loop.call(func() {
				for _, f := range s.flows {
					f.connected -= settleTime
				}
			})
		}
		dies.Close()
		client.Write([]byte("2"))
		proxytest.Eventually(t, func() bool { return returned.Received() == 1 }, "the datagram at the endpoint that returned")
		s.hasDropped(t, map[DropReason]uint64{})
	})
}

// What was answered is not sent again, whatever happens to the endpoint then.
func TestWhatWasAnsweredIsNotSentAgain(t *testing.T) {
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
		next := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("2"))
		s := e.serve(t, identity(t, "1"), next.Addr)
		client := proxytest.DialUDP(t, s.addr)
		client.Ask(t)
		err := errors.New("a refusal that was long on its way")
		switch s := s.socket.(type) {
		case *udpSocket:
			s.mu.Lock()
			for _, session := range s.sessions {
				session.refused(session.current(), err)
			}
			s.mu.Unlock()
		case *epollUDP:
			s.loop.call(func() {
				for _, f := range s.flows {
					s.loop.refusedBy(f, err)
				}
			})
		}
		if got := client.Ask(t).Name; got != "2" {
			t.Errorf("answered by %s", got)
		}
		if n := next.Received(); n != 1 {
			t.Errorf("the next endpoint was sent %d datagrams; want 1", n)
		}
	})
}

// With every endpoint refusing, each datagram is offered to each endpoint once, and that is that:
// no session goes round and round.
func TestWhenAllEndpointsRefuseADatagramIsDropped(t *testing.T) {
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
		s := e.serve(t, deadUDP(t), deadUDP(t), deadUDP(t))
		client := proxytest.DialUDP(t, s.addr)
		for i := range uint64(5) {
			client.Write([]byte("lost"))
			s.hasDropped(t, map[DropReason]uint64{dropUnreachable: i + 1})
			proxytest.Eventually(t, func() bool { return s.sessionCount() == 0 }, "the session gone")
		}
	})
}

// The same for a burst that waited for the endpoint, and of which only the second datagram meets with
// the refusal.
func TestABurstThatWasRefusedGoesToTheNextEndpointInOrder(t *testing.T) {
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
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
		s := e.serve(t, registry.Addr{Host: "dead.example", IP: dead.IP}, proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP).Addr)
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
	})
}

// A datagram too long to keep is lost with the endpoint that refuses it; the session moves all the same.
func TestALongDatagramThatWasRefusedIsCounted(t *testing.T) {
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
		s := e.serve(t, deadUDP(t), identity(t, "lives"))
		client := proxytest.DialUDP(t, s.addr)
		client.Write(make([]byte, maxKept+1))
		s.hasDropped(t, map[DropReason]uint64{dropUnreachable: 1})
		if got := client.Ask(t).Name; got != "lives" {
			t.Errorf("answered by %s", got)
		}
		if got := s.sessionCount(); got != 1 {
			t.Errorf("%d sessions; want 1", got)
		}
	})
}

func TestRepliesOfAnEndpointThatWasLeftAreNotPassedOn(t *testing.T) {
	e := newUDPEngine(t, Config{})
	left := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("left"))
	s := serveUDP(t, e, left.Addr, identity(t, "2"))
	client := proxytest.DialUDP(t, s.addr)
	old := client.Ask(t).Session
	s.setOf("dns", s.ownership.Load().rotation.awake().endpoints[1].addr)
	if got := client.Ask(t).Name; got != "2" {
		t.Fatalf("answered by %s", got)
	}
	for range 10 {
		left.Send("late", old) // refused: nobody is there any more
	}
	// And one that was being read just when the session left:
	owner := s.ownership.Load()
	key := sessionKey{client: client.LocalAddr().(*net.UDPAddr).AddrPort()}
	newSession(s.udpSocket, key, owner).reply(&udpBackend{endpoint: &endpoint{rotation: owner.rotation}}, []byte("late"))
	s.hasDropped(t, map[DropReason]uint64{dropEnded: 1})
	if got, err := client.Exchange([]byte("the next answer")); err != nil || !bytes.HasSuffix(got, []byte("the next answer")) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestAnEndpointThatIsGoneAnswersWhatItWasAskedAndNoMore(t *testing.T) {
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
		release := make(chan struct{})
		left := proxytest.ServeUDP(t, "127.0.0.1:0", func(payload []byte, from netip.AddrPort) []byte {
			if !bytes.HasSuffix(payload, []byte("-1")) {
				<-release
			}
			return proxytest.IdentifyUDP("left")(payload, from)
		})
		s := e.serve(t, left.Addr, identity(t, "2"))
		client := proxytest.DialUDP(t, s.addr)
		session := client.Ask(t).Session
		if _, err := client.Write([]byte("asked before")); err != nil {
			t.Fatal(err)
		}
		proxytest.Eventually(t, func() bool { return left.Received() == 2 }, "the question at the endpoint")
		s.setOf("dns", s.ownership.Load().rotation.awake().endpoints[1].addr)
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
	})
}

// D36: v0.4 looked names up in the loop that reads for all clients.
func TestAClientThatWaitsForANameHoldsUpNobody(t *testing.T) {
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
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
		s := e.serve(t, named, identity(t, "fast"))
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
		s.hasDropped(t, map[DropReason]uint64{dropWaiting: 3, dropUnresolved: 1})
	})
}

// Strangers can make datagrams wait, but not without bound.
func TestWhatWaitsForNamesIsBounded(t *testing.T) {
	onBothEngines(t, Config{}, func(t *testing.T, e *udpEngine) {
		e.resolver.lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		s := e.serve(t, registry.Addr{Host: "slow.example", IP: netip.AddrPortFrom(netip.Addr{}, 53)})
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
	})
}
