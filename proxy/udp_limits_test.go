//go:build linux

package proxy

import (
	"net"
	"net/netip"
	"testing"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
)

// Who has to go when there are too many sessions.

// A flood of forged sources only evicts itself.
func TestAFloodOfStrangersLeavesKnownClientsTheirSessions(t *testing.T) { // D44
	const known, strangers, limit = 50, 2000, 200
	onBothEngines(t, engine.Config{MaxUDPSessions: limit, MaxUDPSessionsPerService: limit}, func(t *testing.T, e *udpEngine) {
		s := e.serve(t, enginetest.Identity(t, "1"), enginetest.Identity(t, "2"))
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
		if got := s.SessionCount(); got != limit {
			t.Errorf("%d sessions; want %d", got, limit)
		}
		for why, n := range s.Dropped() {
			if why != traffic.DropEnded && why != traffic.DropOverload { // the former: answers to strangers whose sessions had ended
				t.Errorf("%d datagrams were dropped: %v", n, why)
			}
		}
	})
}

// To send again is not enough to be known: a forged source can do that, too.
func TestAClientIsKnownOnceItSpeaksAfterAReply(t *testing.T) {
	onBothEngines(t, engine.Config{MaxUDPSessions: 2, MaxUDPSessionsPerService: 2}, func(t *testing.T, e *udpEngine) {
		mute := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.MuteUDP)
		s := e.serve(t, mute.Addr, enginetest.Identity(t, "2"), enginetest.Identity(t, "3"))
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
	})
}

// The limit for all holds across services, and a service at peace is not made to pay for another.
func TestTheLimitForAllEvictsTheOldestStrangerOfAnyService(t *testing.T) {
	onBothEngines(t, engine.Config{MaxUDPSessions: 3, MaxUDPSessionsPerService: 2}, func(t *testing.T, e *udpEngine) {
		a, b := e.serve(t, enginetest.Identity(t, "a")), e.serve(t, enginetest.Identity(t, "b"))
		proxytest.DialUDP(t, a.Addr).Ask(t) // the oldest of all
		proxytest.DialUDP(t, b.Addr).Ask(t)
		proxytest.DialUDP(t, b.Addr).Ask(t)
		counts := func(inA, inB int) {
			t.Helper()
			if a.SessionCount() != inA || b.SessionCount() != inB {
				t.Errorf("%d and %d sessions; want %d and %d", a.SessionCount(), b.SessionCount(), inA, inB)
			}
		}
		proxytest.DialUDP(t, b.Addr).Ask(t) // over b's own limit
		counts(1, 2)
		proxytest.DialUDP(t, a.Addr).Ask(t) // over the limit for all: a's first goes
		counts(1, 2)
		proxytest.DialUDP(t, a.Addr).Ask(t) // and now one of b is the oldest
		counts(2, 1)
	})
}
