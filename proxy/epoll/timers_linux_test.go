package epoll

import (
	"testing"
	"time"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/epoll/wheel"
)

// Of 3,000 clients whose endpoints do not take what they sent, each is looked at once a second in the end, and not 200 times.
func TestConnectionsThatFlushAreLookedAtEverMoreSeldom(t *testing.T) {
	l := bareLoop(engine.Config{}, 0)
	conns := make([]conn, 3000)
	for i := range conns {
		l.conns.enter(&conns[i], flushing)
	}
	looks, most := 0, 0
	for ; l.turn.Now < time.Minute; l.turn.Now += time.Millisecond {
		n := 0
		for {
			c, isDue := l.conns.timers.Next(l.turn.Now)
			if c == nil {
				break
			}
			if isDue {
				n++
				c.looks++
				l.conns.timers.Set(c, l.turn.Now, l.turn.Now+l.conns.lookEvery(c))
			}
		}
		looks, most = looks+n, max(most, n)
	}
	if each := looks / len(conns); each > 70 {
		t.Errorf("each was looked at %d times in a minute", each)
	}
}

// However many are due at once, a turn looks at a few.
func TestATurnLooksAtAFewConnections(t *testing.T) {
	l := bareLoop(engine.Config{TCPKeepAlive: 15 * time.Second}, 0)
	conns := make([]conn, 10*looksATurn)
	for i := range conns {
		c := &conns[i]
		c.client.fd, c.backend.fd = socket.None, socket.None
		l.conns.enter(c, young)
	}
	l.turn.Now = youth + wheel.Step
	left := func() (n int) {
		for i := range conns {
			if conns[i].phase == young {
				n++
			}
		}
		return n
	}
	before := len(conns)
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
