package epoll

import (
	"testing"
	"time"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/relay"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/tcp"
	"kubeproxy/registry"
)

// However many are due at once, a turn looks at a few.
func TestATurnLooksAtAFewConnections(t *testing.T) {
	l := bareLoop(engine.Config{TCPKeepAlive: 15 * time.Second}, 0)
	const conns = 10 * looksATurn
	for range conns {
		l.conns.Enter(l.conns.Begin(socket.None, nil, tcp.Connection{Claim: &engine.Claim{Terms: registry.NoTerms}}), relay.Young)
	}
	l.turn.Now = 2 * time.Second // when they are no longer young
	left := func() (n int) {
		for c := range l.conns.All {
			if c.Phase() == relay.Young {
				n++
			}
		}
		return n
	}
	before := conns
	for turn := 0; left() > 0; turn++ {
		l.expire()
		n := left()
		if before-n > looksATurn || turn > 100 {
			t.Fatalf("turn %d looked at %d connections; want %d at most", turn, before-n, looksATurn)
		}
		if n > 0 && l.nextDue() > l.turn.Now {
			t.Fatalf("with %d connections due the loop would wait", n)
		}
		before = n
	}
}
