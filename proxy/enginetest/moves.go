package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/proxy/udp"
	"kubeproxy/registry"
)

// How a session gets from one endpoint to the next, and what becomes of its datagrams then.

func (u suite) TestASessionLeavesAnEndpointThatIsGoneWithTheNextDatagram(t *testing.T) { // D42
	e := u.newUDP(t, engine.Config{})
	one, two := Identity(t, "1"), Identity(t, "2")
	s := e.Serve(t, one, two)
	client := proxytest.DialUDP(t, s.Addr)
	if got := client.Ask(t).Name; got != "1" {
		t.Fatalf("answered by %s", got)
	}
	s.Set(two)
	if got := client.Ask(t).Name; got != "2" {
		t.Errorf("after its endpoint was gone, answered by %s", got)
	}
	if got := s.SessionCount(); got != 1 {
		t.Errorf("%d sessions; want 1", got)
	}
}

// It does so whether or not the first one has ever answered.
func (u suite) TestASessionThatWasNeverAnsweredLeavesAnEndpointThatIsReplaced(t *testing.T) {
	e := u.newUDP(t, engine.Config{})
	one, two := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP), proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	s := e.Serve(t, one.Addr)
	client := proxytest.DialUDP(t, s.Addr)
	client.Write([]byte("1"))
	proxytest.Eventually(t, func() bool { return one.Received() == 1 }, "a datagram at the first endpoint")
	s.Set(two.Addr)
	client.Write([]byte("2"))
	proxytest.Eventually(t, func() bool { return two.Received() == 1 }, "a datagram at the second endpoint")
	s.HasDropped(t, map[traffic.DropReason]uint64{})
}

func (u suite) TestASessionWhoseEndpointsAreAllGoneEnds(t *testing.T) {
	e := u.newUDP(t, engine.Config{})
	one := Identity(t, "1")
	s := e.Serve(t, one)
	client := proxytest.DialUDP(t, s.Addr)
	client.Ask(t)
	s.Set()
	client.Write([]byte("lost"))
	s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropNoEndpoints: 1})
	proxytest.Eventually(t, func() bool { return s.SessionCount() == 0 }, "the session gone")
	s.Set(one)
	client.Ask(t)
}

// Nothing is lost with an endpoint that refuses, for it has not seen what it refused.
func (u suite) TestWhatAnEndpointRefusedIsAnsweredByTheNext(t *testing.T) {
	e := u.newUDP(t, engine.Config{})
	dies := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("dies"))
	s := e.Serve(t, dies.Addr, DeadUDP(t), DeadUDP(t), Identity(t, "lives"))
	client := proxytest.DialUDP(t, s.Addr)
	if got := client.Ask(t).Name; got != "dies" {
		t.Fatalf("answered by %s", got)
	}
	dies.Close()
	if got := client.Ask(t).Name; got != "lives" { // Ask sends once
		t.Errorf("answered by %s", got)
	}
	if got := s.SessionCount(); got != 1 {
		t.Errorf("%d sessions; want 1", got)
	}
	s.HasDropped(t, map[traffic.DropReason]uint64{})
	for range 8 {
		if got := proxytest.DialUDP(t, s.Addr).Ask(t).Name; got != "lives" {
			t.Errorf("a newcomer was answered by %s", got)
		}
	}
	for _, ep := range s.Ownership.Load().Rotation.Endpoints()[:3] {
		if ep.Status().EjectedUntil.IsZero() {
			t.Errorf("%v refused and is not ejected", ep.Addr)
		}
	}
}

// A session that only ever sends learns of a refusal, too, and moves for it.
func (u suite) TestASessionThatIsNeverAnsweredMovesWhenRefused(t *testing.T) {
	e := u.newUDP(t, engine.Config{})
	dies := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	lives := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	s := e.Serve(t, dies.Addr, lives.Addr)
	client := proxytest.DialUDP(t, s.Addr)
	client.Write([]byte("1"))
	proxytest.Eventually(t, func() bool { return dies.Received() == 1 }, "a datagram at the first endpoint")
	dies.Close()
	for i := range int64(20) {
		client.Write([]byte("2"))
		proxytest.Eventually(t, func() bool { return lives.Received() == i+1 }, "datagram %d at the second endpoint", i+2)
	}
}

// With every endpoint refusing, each datagram is offered to each endpoint once, and that is that:
// no session goes round and round.
func (u suite) TestWhenAllEndpointsRefuseADatagramIsDropped(t *testing.T) {
	e := u.newUDP(t, engine.Config{})
	s := e.Serve(t, DeadUDP(t), DeadUDP(t), DeadUDP(t))
	client := proxytest.DialUDP(t, s.Addr)
	for i := range uint64(5) {
		client.Write([]byte("lost"))
		s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropUnreachable: i + 1})
		proxytest.Eventually(t, func() bool { return s.SessionCount() == 0 }, "the session gone")
	}
}

// The same for a burst that waited for the endpoint, and of which only the second datagram meets with
// the refusal.
func (u suite) TestABurstThatWasRefusedGoesToTheNextEndpointInOrder(t *testing.T) {
	e := u.newUDP(t, engine.Config{})
	dead := DeadUDP(t)
	lookedUp := make(chan struct{})
	e.Resolver.Lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		select {
		case <-lookedUp:
			return []netip.Addr{proxytest.Loopback}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s := e.Serve(t, registry.Addr{Host: "dead.example", IP: dead.IP}, proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP).Addr)
	client := proxytest.DialUDP(t, s.Addr)
	for i := range byte(10) {
		client.Write([]byte{i})
	}
	proxytest.Eventually(t, func() bool { return e.Sessions.WaitingBytes.Load() == 10 }, "ten bytes waiting")
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
func (u suite) TestALongDatagramThatWasRefusedIsCounted(t *testing.T) {
	e := u.newUDP(t, engine.Config{})
	s := e.Serve(t, DeadUDP(t), Identity(t, "lives"))
	client := proxytest.DialUDP(t, s.Addr)
	client.Write(make([]byte, udp.MaxKept+1))
	s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropUnreachable: 1})
	if got := client.Ask(t).Name; got != "lives" {
		t.Errorf("answered by %s", got)
	}
	if got := s.SessionCount(); got != 1 {
		t.Errorf("%d sessions; want 1", got)
	}
}

func (u suite) TestAnEndpointThatIsGoneAnswersWhatItWasAskedAndNoMore(t *testing.T) {
	e := u.newUDP(t, engine.Config{})
	release := make(chan struct{})
	left := proxytest.ServeUDP(t, "127.0.0.1:0", func(payload []byte, from netip.AddrPort) []byte {
		if !bytes.HasSuffix(payload, []byte("-1")) {
			<-release
		}
		return proxytest.IdentifyUDP("left")(payload, from)
	})
	s := e.Serve(t, left.Addr, Identity(t, "2"))
	client := proxytest.DialUDP(t, s.Addr)
	session := client.Ask(t).Session
	if _, err := client.Write([]byte("asked before")); err != nil {
		t.Fatal(err)
	}
	proxytest.Eventually(t, func() bool { return left.Received() == 2 }, "the question at the endpoint")
	s.SetOf("dns", s.Ownership.Load().Rotation.Endpoints()[1].Addr)
	close(release)
	buf := make([]byte, 100)
	client.SetReadDeadline(time.Now().Add(proxytest.Patience))
	if n, err := client.Read(buf); err != nil || !bytes.HasSuffix(buf[:n], []byte("asked before")) {
		t.Fatalf("got %q, %v; want the answer to what was asked before", buf[:n], err)
	}
	if err := left.Send("unasked", session); err != nil {
		t.Fatal(err)
	}
	s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropEnded: 1})
	if got := client.Ask(t).Name; got != "2" {
		t.Errorf("answered by %s", got)
	}
}

// D36: v0.4 looked names up in the loop that reads for all clients.
func (u suite) TestAClientThatWaitsForANameHoldsUpNobody(t *testing.T) {
	e := u.newUDP(t, engine.Config{})
	answer := make(chan struct{})
	e.Resolver.Lookup = func(ctx context.Context, _, host string) ([]netip.Addr, error) {
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
	s := e.Serve(t, named, Identity(t, "fast"))
	waits, other := proxytest.DialUDP(t, s.Addr), proxytest.DialUDP(t, s.Addr)
	for i := range udp.MaxWaiting + 3 {
		fmt.Fprintf(waits, "%02d", i)
	}
	s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropWaiting: 3})
	for range 3 {
		if got := other.Ask(t).Name; got != "fast" {
			t.Errorf("answered by %s", got)
		}
	}
	close(answer)
	var got []string
	for range udp.MaxWaiting {
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
	if got := e.Sessions.WaitingBytes.Load(); got != 0 {
		t.Errorf("%d bytes are taken for waiting", got)
	}

	s.Set(registry.Addr{Host: "unknown.example", IP: named.IP})
	waits.Write([]byte("lost"))
	s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropWaiting: 3, traffic.DropUnresolved: 1})
}

// Strangers can make datagrams wait, but not without bound.
func (u suite) TestWhatWaitsForNamesIsBounded(t *testing.T) {
	e := u.newUDP(t, engine.Config{})
	e.Resolver.Lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s := e.Serve(t, registry.Addr{Host: "slow.example", IP: netip.AddrPortFrom(netip.Addr{}, 53)})
	const length = 60_000
	fit := admit.MaxWaitingBytes / length
	for i := range fit + 10 {
		proxytest.DialUDP(t, s.Addr).Write(make([]byte, length))
		proxytest.Eventually(t, func() bool { return s.SessionCount() == i+1 }, "session %d", i+1)
	}
	s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropWaiting: 10})
	s.close()
	s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropWaiting: 10, traffic.DropEnded: uint64(fit)})
	if got := e.Sessions.WaitingBytes.Load(); got != 0 {
		t.Errorf("%d bytes are taken for waiting", got)
	}
}
