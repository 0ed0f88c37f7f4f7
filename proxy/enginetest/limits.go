package enginetest

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
)

// Who has to go when there are too many sessions.

// A flood of forged sources only evicts itself.
func (u suite) TestAFloodOfStrangersLeavesKnownClientsTheirSessions(t *testing.T) { // D44
	proxytest.NeedsAddresses(t, "127.1.0.0")
	const known, strangers, limit = 50, 2000, 200
	e := u.newUDP(t, engine.Config{MaxUDPSessions: limit, MaxUDPSessionsPerService: limit})
	s := e.Serve(t, Identity(t, "1"), Identity(t, "2"))
	var clients []*proxytest.UDPClient
	var answers []proxytest.Answer
	for range known {
		client := proxytest.DialUDP(t, s.Addr)
		client.Ask(t)
		clients, answers = append(clients, client), append(answers, client.Ask(t))
	}
	for i := range strangers {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), 0)
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(s.Addr))
		if err != nil {
			t.Fatal(err)
		}
		conn.Write([]byte("forged"))
		conn.Close()
		if i%100 == 0 {
			clients[i/100].Ask(t)
		}
	}
	seen := func() uint64 {
		return s.Ownership.Load().Tally.Totals().Ended[traffic.Evicted] + uint64(s.SessionCount()) + s.Dropped()[traffic.DropOverload]
	}
	proxytest.Eventually(t, func() bool { return seen() == known+strangers }, "every stranger given a session or, on a slow machine, refused one")
	for i, client := range clients {
		if got := client.Ask(t); got != answers[i] {
			t.Errorf("known client %d had %v and now has %v", i, answers[i], got)
		}
	}
	proxytest.Eventually(t, func() bool { return s.SessionCount() == limit }, "%d sessions", limit) // evicted ones leave by themselves
	for why, n := range s.Dropped() {
		if why != traffic.DropEnded && why != traffic.DropOverload { // the former: answers to strangers whose sessions had ended
			t.Errorf("%d datagrams were dropped: %v", n, why)
		}
	}
}

// To send again is not enough to be known: a forged source can do that, too.
func (u suite) TestAClientIsKnownOnceItSpeaksAfterAReply(t *testing.T) {
	e := u.newUDP(t, engine.Config{MaxUDPSessions: 2, MaxUDPSessionsPerService: 2})
	mute := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
	s := e.Serve(t, mute.Addr, Identity(t, "2"), Identity(t, "3"))
	unheard, known := proxytest.DialUDP(t, s.Addr), proxytest.DialUDP(t, s.Addr)
	for range int64(5) {
		unheard.Write([]byte("again"))
	}
	proxytest.Eventually(t, func() bool { return mute.Received() == 5 }, "five datagrams at the endpoint")
	known.Ask(t)
	if n := e.Sessions.Known(); n != 0 {
		t.Errorf("%d clients are known before any has spoken after a reply", n)
	}
	before := known.Ask(t)
	proxytest.DialUDP(t, s.Addr).Ask(t)
	if got := known.Ask(t); got != before {
		t.Errorf("the known client had %v and now has %v", before, got)
	}
}

// The limit for all holds across services, and a service at peace is not made to pay for another.
func (u suite) TestTheLimitForAllEvictsTheOldestStrangerOfAnyService(t *testing.T) {
	e := u.newUDP(t, engine.Config{MaxUDPSessions: 3, MaxUDPSessionsPerService: 2})
	a, b := e.Serve(t, Identity(t, "a")), e.Serve(t, Identity(t, "b"))
	proxytest.DialUDP(t, a.Addr).Ask(t) // the oldest of all
	proxytest.DialUDP(t, b.Addr).Ask(t)
	proxytest.DialUDP(t, b.Addr).Ask(t)
	counts := func(inA, inB int) {
		t.Helper()
		proxytest.Eventually(t, func() bool { return a.SessionCount() == inA && b.SessionCount() == inB }, // one that is evicted leaves by itself
			"%d and %d sessions; there are %v", inA, inB, stringer(func() string { return fmt.Sprint(a.SessionCount(), " and ", b.SessionCount()) }))
	}
	proxytest.DialUDP(t, b.Addr).Ask(t) // over b's own limit
	counts(1, 2)
	proxytest.DialUDP(t, a.Addr).Ask(t) // over the limit for all: a's first goes
	counts(1, 2)
	proxytest.DialUDP(t, a.Addr).Ask(t) // and now one of b is the oldest
	counts(2, 1)
}
