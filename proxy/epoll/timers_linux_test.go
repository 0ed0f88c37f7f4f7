package epoll

import (
	"math/rand/v2"
	"testing"
	"time"

	"kubeproxy/proxy/engine"
)

// newTimers returns timers, and a connection for each of so many names.
func newTimers(n int) (*timers, []conn) {
	t := new(timers)
	t.init()
	return t, make([]conn, n)
}

// Whatever is set, stopped and set anew, a connection is due once, not early, and late by at most a step.
func TestTimersAgreeWithAPlainList(t *testing.T) {
	timers, conns := newTimers(300)
	want := make(map[*conn]time.Duration)
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Duration(0)
	for step := range 20_000 {
		c := &conns[random.IntN(len(conns))]
		switch random.IntN(4) {
		case 0:
			timers.stop(c)
			delete(want, c)
		case 1, 2:
			due := now + time.Duration(random.Int64N(int64(1)<<random.IntN(38)))
			timers.set(c, now, due)
			want[c] = due
		default:
			now += time.Duration(random.Int64N(int64(20 * time.Millisecond)))
		}
		for {
			c, isDue := timers.next(now)
			if c == nil {
				break
			}
			if !isDue {
				continue
			}
			if due, isSet := want[c]; !isSet || due > now {
				t.Fatalf("step %d: due at %v, although it is to be at %v (%v)", step, now, due, isSet)
			}
			delete(want, c)
		}
		for _, due := range want {
			if due+timerStep <= now {
				t.Fatalf("step %d: one that was due at %v is not at %v", step, due, now)
			}
		}
	}
	for c := range want {
		timers.stop(c)
	}
	if timers.used != 0 || timers.wake() != never {
		t.Errorf("rings %b are said to have members when none is set", timers.used)
	}
}

// Of 3,000 clients whose endpoints do not take what they sent, each is looked at once a second in the end, and not 200 times.
func TestConnectionsThatFlushAreLookedAtEverMoreSeldom(t *testing.T) {
	l := bareLoop(engine.Config{}, 0)
	conns := make([]conn, 3000)
	for i := range conns {
		l.conns.enter(&conns[i], flushing)
	}
	looks, most := 0, 0
	for ; l.turn.now < time.Minute; l.turn.now += time.Millisecond {
		n := 0
		for {
			c, isDue := l.conns.timers.next(l.turn.now)
			if c == nil {
				break
			}
			if isDue {
				n++
				c.looks++
				l.conns.timers.set(c, l.turn.now, l.turn.now+l.conns.lookEvery(c))
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
		c.client.fd, c.backend.fd = noDescriptor, noDescriptor
		l.conns.enter(c, young)
	}
	l.turn.now = youth + timerStep
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
		if n > 0 && l.nextDue() > l.turn.now {
			t.Fatalf("with %d connections due the loop would wait", n)
		}
		before = n
	}
}
