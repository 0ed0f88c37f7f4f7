package conformancetest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// What becomes of each datagram that clients send: an endpoint receives it, or the proxy counts it as dropped.

// A udpLedger has the payloads that endpoints have received, and how often.
type udpLedger struct {
	mu       sync.Mutex
	received map[string]int
}

func newUDPLedger() *udpLedger { return &udpLedger{received: make(map[string]int)} }

// serve starts an endpoint whose receipts are in the ledger. It answers as answer says; nil answers nothing.
func (l *udpLedger) serve(t *testing.T, answer func([]byte, netip.AddrPort) []byte) *proxytest.UDPServer {
	t.Helper()
	return proxytest.ServeUDP(t, "127.0.0.1:0", func(payload []byte, from netip.AddrPort) []byte {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.received[string(payload)]++
		return answer(payload, from)
	})
}

// all returns what was received so far.
func (l *udpLedger) all() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.received)
}

// droppedOf returns how many datagrams of the service "dns" were dropped, for each reason there was.
func droppedOf(n *node) (sum uint64, reasons map[string]uint64) {
	reasons = make(map[string]uint64)
	for why, dropped := range totalsOf(n, "dns").Dropped {
		if dropped > 0 {
			reasons[traffic.DropReason(why).Code()] = dropped
			sum += dropped
		}
	}
	return sum, reasons
}

// An endpoint may end before the burst of a client, or within it. The datagrams that it refuses go to the next endpoint, and so do those that
// come while the client moves there, as far as there is room for them.
func (s suite) TestABurstToAnEndpointThatDiesIsDeliveredOrCounted(t *testing.T) {
	const rounds, burst = 20, 200
	for _, when := range []struct {
		name  string
		at    int // which datagram finds it refusing
		burst int
	}{{"before six datagrams", 0, 6}, {"before the burst", 0, burst}, {"within the burst", burst / 4, burst}} {
		t.Run(when.name, func(t *testing.T) {
			for range rounds {
				s.burst(t, when.at, when.burst)
			}
		})
	}
}

// burst has a client send datagrams to an endpoint that refuses them from one of them on. Another endpoint receives.
func (s suite) burst(t *testing.T, at, burst int) {
	t.Helper()
	cfg := s.config()
	cfg.DrainTimeout = time.Nanosecond // else each round would wait for its session to fall silent
	n := newNode(t, cfg)
	defer n.end()
	ledger := newUDPLedger()
	answer := func(payload []byte, _ netip.AddrPort) []byte {
		if string(payload) == "first" {
			return payload
		}
		return nil // an answer may be dropped, too
	}
	dies, lives := ledger.serve(t, answer), ledger.serve(t, answer)
	client := proxytest.DialUDP(t, udpThrough(t, n, dies.Addr, lives.Addr))
	if _, err := client.Exchange([]byte("first")); err != nil {
		t.Fatal(err)
	}
	for i := range burst {
		if i == at {
			dies.Refuse()
		}
		if _, err := client.Write(fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	received, dropped, why := 0, uint64(0), map[string]uint64(nil)
	if !proxytest.Becomes(func() bool {
		all := ledger.all() // a port may be sent what was meant for a socket that had it before
		received = 0
		for i := range burst {
			received += min(all[fmt.Sprint(i)], 1)
		}
		dropped, why = droppedOf(n)
		return received+int(dropped) >= burst
	}) || received+int(dropped) > burst {
		t.Fatalf("of %d datagrams %d were received, and dropped were %v", burst, received, why)
	}
}

// When no other endpoint takes the client, what was refused is counted.
func (s suite) TestABurstThatEveryEndpointRefusesIsCounted(t *testing.T) {
	const burst = 20
	n := newNode(t, s.config())
	endpoints := []registry.Addr{refusingUDP(t), refusingUDP(t)}
	client := proxytest.DialUDP(t, udpThrough(t, n, endpoints...))
	for i := range burst {
		if _, err := client.Write(fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	dropped, why := uint64(0), map[string]uint64(nil)
	if !proxytest.Becomes(func() bool { dropped, why = droppedOf(n); return int(dropped) >= burst }) || dropped > burst {
		t.Errorf("of %d datagrams, which no endpoint received, dropped were %v", burst, why)
	}
}

// A session may be evicted in the moment in which it sends.
func (s suite) TestTheCountsOfAnEvictedSessionAreWhatItsEndpointReceived(t *testing.T) {
	const clients, burst = 100, 12
	cfg := s.config()
	cfg.MaxUDPSessions, cfg.MaxUDPSessionsPerService = 1, 1
	cfg.MaxNewUDPSessions = 1_000_000
	var endings ended
	cfg.Ended = endings.note
	n := newNode(t, cfg)
	ledger := newUDPLedger()
	at := udpThrough(t, n, ledger.serve(t, proxytest.MuteUDP).Addr)
	for c := range clients {
		client := proxytest.DialUDP(t, at)
		for i := range burst {
			if _, err := client.Write(fmt.Appendf(nil, "%3d %3d", c, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	received, dropped := 0, uint64(0)
	proxytest.Eventually(t, func() bool {
		received = len(ledger.all())
		dropped, _ = droppedOf(n)
		return received+int(dropped) >= clients*burst
	}, "each datagram to be received, or counted as dropped")
	n.end()
	bytes := uint64(0)
	for _, ending := range endings.of(t, registry.UDP, 1) {
		bytes += ending.Sent
	}
	sent := slices.Collect(func(yield func(uint64) bool) {
		for _, totals := range n.Totals() {
			if !yield(totals.SentDatagrams) {
				return
			}
		}
	})
	if want := uint64(received); len(sent) != 1 || sent[0] != want || bytes != 7*want || totalsOf(n, "dns").Sent != 7*want {
		t.Errorf("the endpoint received %d datagrams of 7 bytes; counted are %v datagrams and %d bytes, and %d bytes in endings", received, sent, totalsOf(n, "dns").Sent, bytes)
	}
}
