//go:build linux

package hostile

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// sessionBytes is what one UDP session may take of memory, and settled how long nothing may change before it counts
// as over.
const (
	sessionBytes = 20 << 10
	settled      = 500 * time.Millisecond
)

// TestForgedSendersTakeNoSession: a flood of datagrams from addresses without a host, while known clients talk.
// The endpoint sees each client's session as an address; a known client whose session ended would have another.
func TestForgedSendersTakeNoSession(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	const known = 100
	forged, rate := number(100_000, 20_000), 25_000
	s := newSite(t)
	type client struct {
		conn *net.UDPConn
		had  string
	}
	// ask gives what the endpoint sees; "" if a datagram was lost.
	ask := func(c *client) string {
		var buf [64]byte
		_ = c.conn.SetDeadline(time.Now().Add(time.Second))
		if _, err := c.conn.Write([]byte("known")); err != nil {
			return ""
		}
		n, err := c.conn.Read(buf[:])
		if err != nil {
			return ""
		}
		return string(buf[:n])
	}
	clients := make([]*client, known)
	for i := range clients {
		addr, err := net.ResolveUDPAddr("udp4", at(mirrorPort))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.DialUDP("udp4", nil, addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		clients[i] = &client{conn: conn}
		for range 2 { // who speaks again after an answer is known
			eventually(t, func() bool { clients[i].had = ask(clients[i]); return clients[i].had != "" }, "client %d is answered", i)
		}
	}
	// came tells how many strangers have reached the target of the flood.
	came := func(atProxy bool) int {
		if !atProxy {
			return s.arrived(t)
		}
		of := func(metric string) float64 { return s.sum(t, metric, "service", "default/mirror") }
		return int(of("kubeproxy_udp_sessions_active") + of("kubeproxy_udp_sessions_ended_total") + s.ended(t, "kubeproxy_udp_dropped_datagrams_total", "mirror")["overload"])
	}
	var answered, lost atomic.Int64
	felt := s.beside(t, func(t *testing.T, atProxy bool) func() {
		aim := sinkAddr
		if atProxy {
			aim = at(mirrorPort)
		}
		var talking sync.WaitGroup
		var over atomic.Bool
		for i, c := range clients {
			talking.Go(func() {
				for ; !over.Load(); time.Sleep(20 * time.Millisecond) {
					switch got := ask(c); got {
					case "":
						lost.Add(1)
					case c.had:
						answered.Add(1)
					default:
						t.Errorf("known client %d was %s for the endpoint and is %s now: its session was lost", i, c.had, got)
						return
					}
				}
			})
		}
		before := came(atProxy)
		p := cast(t, "forger", aim, forged, rate)
		s.works(t)
		p.Stdout.Wait(t, "done: ")
		over.Store(true)
		talking.Wait()
		return func() {
			if some := came(atProxy) - before; some < forged/2 { // a busy machine loses many
				t.Errorf("of %d forged senders %d reached %s", forged, some, aim)
			}
			dismiss(t, p)
		}
	})
	for i, c := range clients {
		eventually(t, func() bool {
			got := ask(c)
			if got != "" && got != c.had {
				t.Fatalf("known client %d was %s for the endpoint and is %s now", i, c.had, got)
			}
			return got != ""
		}, "client %d is answered when it is over", i)
	}
	got := s.ended(t, "kubeproxy_udp_sessions_ended_total", "mirror")
	if got["evicted"] == 0 {
		t.Errorf("sessions ended: %s; want some evicted: was that a flood?", told(got))
	}
	drops := s.ended(t, "kubeproxy_udp_dropped_datagrams_total", "mirror")
	room := s.sum(t, "kubeproxy_limit_max", "limit", "udp_sessions")
	r := s.row(t, fmt.Sprintf("%d forged senders of datagrams beside %d known clients (of whose datagrams %d were answered, %d not)", forged, known, answered.Load(), lost.Load()),
		base+uint64(room)*sessionBytes)
	r.Refused = "sessions: " + told(got) + "; datagrams: " + told(drops)
	r.Felt = felt
	r.judge(t)
}
