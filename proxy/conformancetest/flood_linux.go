package conformancetest

import (
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
)

// What one UDP session may cost this process: its goroutine with its stack, its socket as package net has it,
// itself (measured: 7.5 KiB; the kernel has its own part of each socket). And while a datagram is in hand, a
// buffer for it, which goes back to a pool.
const (
	sessionBytes = 12 << 10
	bufferBytes  = 64 << 10
)

// A flood of datagrams whose senders do not exist costs memory for as many sessions as there may be, and
// no known client its session. (It may cost known clients datagrams: what the kernel's queue has no room for
// is lost, of any client. How many, depends on the machine: see UDPQueue.)
func (s suite) TestAFloodOfForgedSendersTakesNoSessionFromAKnownClient(t *testing.T) { // D44
	const forged, known, limit, most = 100_000, 100, 1000, 1000
	const atOnce = most + most/8 + 64 // some have ended, and are just leaving
	cfg := s.config()
	// What tracks connections on this machine is not to be flooded, too.
	if !proxytest.InOwnNetwork(t) {
		return
	}
	cfg.MaxUDPSessions, cfg.MaxUDPSessionsPerService = most, limit
	n := newNode(t, cfg)
	addr := udpThrough(t, n, servedUDP(t, "1"), servedUDP(t, "2"))
	clients := make([]*proxytest.UDPClient, known)
	had := make([]proxytest.Answer, known)
	for i := range clients {
		clients[i] = proxytest.DialUDP(t, addr)
		clients[i].Ask(t)
		had[i] = clients[i].Ask(t) // who speaks again after an answer is known
	}
	before := memory()

	over, talking := make(chan struct{}), sync.WaitGroup{}
	var answered, lost atomic.Int64
	for i, client := range clients {
		talking.Go(func() {
			for !isClosed(over) {
				switch got, err := client.Try(time.Second); {
				case err != nil:
					lost.Add(1)
				case got != had[i]:
					t.Errorf("known client %d had %v and was answered by %v", i, had[i], got)
					return
				default:
					answered.Add(1)
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	var largest uint64
	started := time.Now()
	for i := range forged {
		from := netip.AddrFrom4([4]byte{127, byte(1 + i>>16), byte(i >> 8), byte(i)})
		if err := forge(from, addr); err != nil {
			t.Fatal(err)
		}
		if i%10_000 == 0 {
			largest = max(largest, memory())
			if dns := totalsOf(n, "dns"); dns.Active > atOnce {
				t.Errorf("after %d datagrams %d sessions; want %d at most", i, dns.Active, atOnce)
			}
		}
	}
	took := time.Since(started)
	close(over)
	talking.Wait()
	for i, client := range clients {
		if got := client.AskOften(t); got != had[i] {
			t.Errorf("known client %d had %v and now has %v", i, had[i], got)
		}
	}
	dns := totalsOf(n, "dns")
	for _, l := range n.Limits() {
		if l.Name == "udp_sessions" && l.Used > limit {
			t.Errorf("%d sessions; want %d at most", l.Used, limit)
		}
	}
	if dns.Ended[traffic.Evicted] < limit {
		t.Errorf("only %d sessions were evicted: was that a flood?", dns.Ended[traffic.Evicted])
	}
	for why, ended := range dns.Ended {
		if why := traffic.Reason(why); ended > 0 && why != traffic.Evicted {
			t.Errorf("%d sessions ended: %s", ended, why)
		}
	}
	if grown := largest - min(before, largest); grown > atOnce*(sessionBytes+bufferBytes) {
		t.Errorf("memory has grown by %d bytes for %d sessions; want %d for each at most", grown, atOnce, sessionBytes+bufferBytes)
	}
	rest := memory()
	if grown := rest - min(before, rest); grown > limit*sessionBytes {
		t.Errorf("when all was over, memory had grown by %d bytes for %d sessions; want %d for each at most", grown, limit, sessionBytes)
	}
	t.Logf("%d datagrams in %v, %d sessions evicted; of known clients' datagrams %d answered, %d not; memory before %d KiB, at most %d, after %d",
		forged, took, dns.Ended[traffic.Evicted], answered.Load(), lost.Load(), before>>10, largest>>10, rest>>10)
}

// memory is what this process has in use after a collection, stacks included.
func memory() uint64 {
	runtime.GC()
	runtime.GC() // what was pooled goes only now
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// forge sends a datagram from an address where no client waits for an answer.
func forge(from netip.Addr, to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: from.As4()}); err != nil {
		return err
	}
	return unix.Sendto(fd, []byte("forged"), 0, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
}
