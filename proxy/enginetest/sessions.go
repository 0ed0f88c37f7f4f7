package enginetest

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
)

// What fits into IPv6 need not fit into IPv4. That costs the datagram, not the session, nor is it
// the endpoint's fault.
func (u suite) TestADatagramTooLongForTheEndpointsFamilyIsDropped(t *testing.T) {
	e := u.newUDP(t, engine.Config{BindAddress: netip.IPv6Loopback()})
	s := e.Serve(t, proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.EchoUDP).Addr)
	client := proxytest.DialUDP(t, s.Addr)
	if _, err := client.Write(make([]byte, 65508)); err != nil {
		t.Fatal(err)
	}
	s.HasDropped(t, map[traffic.DropReason]uint64{traffic.DropTooLong: 1})
	if got, err := client.Exchange([]byte("short")); err != nil || string(got) != "short" {
		t.Errorf("got %q, %v", got, err)
	}
	if !s.Ownership.Load().Rotation.Endpoints()[0].Status().EjectedUntil.IsZero() {
		t.Error("the endpoint was blamed")
	}
}

func (u suite) TestASessionStaysWhileOneSideSpeaks(t *testing.T) {
	const timeout = time.Second
	proxytest.Punctually(t, timeout/2, func(beat func()) error {
		e := u.newUDP(t, engine.Config{UDPTimeout: timeout})
		mute := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
		server := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("2"))
		s := e.Serve(t, mute.Addr, server.Addr)
		speaks, listens := proxytest.DialUDP(t, s.Addr), proxytest.DialUDP(t, s.Addr)
		speaks.Write([]byte("x"))
		backend := listens.Ask(t).Session
		for start := time.Now(); time.Since(start) < 2*timeout+timeout/2; time.Sleep(timeout / 20) {
			beat()
			speaks.Write([]byte("x"))
			server.Send("x", backend)
		}
		if left, seen := s.SessionCount(), mute.Sessions(); left != 2 || seen != 1 {
			return fmt.Errorf("%d sessions are left, and the endpoint that is only spoken to saw %d; want 2 and 1", left, seen)
		}
		return nil
	})
}

// The session of a client that has gone does not count as one more client.
func (u suite) TestASessionThatEndsTakesNobodysTurn(t *testing.T) {
	e := u.newUDP(t, engine.Config{UDPTimeout: time.Second / 2})
	s := e.Serve(t, Identity(t, "1"), Identity(t, "2"), Identity(t, "3"))
	for _, want := range []string{"1", "2", "3", "1"} {
		if got := proxytest.DialUDP(t, s.Addr).Ask(t).Name; got != want {
			t.Errorf("a client was answered by %q; it was the turn of %q", got, want)
		}
		proxytest.Eventually(t, func() bool { return s.SessionCount() == 0 }, "the session to end")
	}
}

// D40: v0.4 set the timer after the first successful write, so such a session never ended.
func (u suite) TestASilentSessionEndsWhetherOrNotItWasEverAnswered(t *testing.T) {
	e := u.newUDP(t, engine.Config{UDPTimeout: 100 * time.Millisecond})
	mute := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	s := e.Serve(t, Identity(t, "1"), mute.Addr)
	sockets := proxytest.Sockets(t)
	answered, ignored := proxytest.DialUDP(t, s.Addr), proxytest.DialUDP(t, s.Addr)
	answered.Ask(t)
	ignored.Write([]byte("is anybody there?"))
	proxytest.Eventually(t, func() bool { return mute.Received() == 1 }, "the second session")
	proxytest.Eventually(t, func() bool { return s.SessionCount() == 0 && proxytest.Sockets(t) == sockets+2 },
		"all sessions gone")
}

func (u suite) TestEachUDPSessionIsGivenTheNextEndpointAndKeepsIt(t *testing.T) {
	e := u.newUDP(t, engine.Config{})
	s := e.Serve(t, Identity(t, "1"), Identity(t, "2"), Identity(t, "3"))
	var order string
	for range 4 {
		client := proxytest.DialUDP(t, s.Addr)
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
