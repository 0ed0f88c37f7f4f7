package relay

import (
	"testing"
	"time"
	"unsafe"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/reactor"
)

// What a connection costs while nothing happens on it, beside two descriptors and what the kernel has for it.
func TestAnIdleConnectionTakes240Bytes(t *testing.T) {
	const slot = 8 // what a slab adds
	if size := unsafe.Sizeof(Conn{}) + slot; size > 240 {
		t.Errorf("%d bytes; want 240 at most", size)
	}
}

// Of 3,000 clients whose endpoints do not take what they sent, each is looked at once a second in the end, and not 200 times.
func TestConnectionsThatFlushAreLookedAtEverMoreSeldom(t *testing.T) {
	var turn reactor.Turn
	var cs Conns
	cs.Init(new(engine.Base), &turn)
	conns := make([]Conn, 3000)
	for i := range conns {
		cs.Enter(&conns[i], flushing)
	}
	looks, most := 0, 0
	for ; turn.Now < time.Minute; turn.Now += time.Millisecond {
		n := 0
		for {
			c, isDue := cs.Next()
			if c == nil {
				break
			}
			if isDue {
				n++
				cs.lookAgain(c)
			}
		}
		looks, most = looks+n, max(most, n)
	}
	if each := looks / len(conns); each > 70 {
		t.Errorf("each was looked at %d times in a minute", each)
	}
}
