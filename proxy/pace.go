package proxy

import (
	"sync/atomic"
	"time"
)

// A pace bounds how often something may happen that strangers can ask for without end: that a UDP session
// begins. To begin one costs as much as to carry fifty datagrams, on a small node everybody else waits for that, and the
// sender of a datagram can be forged. A limit on how many sessions there are bounds the memory, and no more: a full
// table evicts one for each that begins.
//
// What was not used of the last fifth of a second may be made up for, so many clients that all come at one moment
// are welcome. Any goroutine may ask.
type pace struct {
	each time.Duration // from one to the next
	next atomic.Int64  // when the next one is due, had all come evenly; by the clock of sinceStart
}

const makeUpFor = 200 * time.Millisecond

// newPace lets n happen in a second. Before it was made nothing happened, so all of what may be made up for is there,
// even if the process has only just started.
func newPace(n int) *pace {
	p := &pace{each: max(1, time.Second/time.Duration(n))}
	p.next.Store(int64(-makeUpFor))
	return p
}

// newPortPace lets most of them be of one port, and not all: so a flood of one leaves room for newcomers to others.
func newPortPace(n int) *pace { return newPace(max(1, n-n/5)) }

// ask tells whether it may happen now, and if so counts it.
func (p *pace) ask(now time.Duration) bool {
	for {
		next := p.next.Load()
		due := max(time.Duration(next), now-makeUpFor)
		if due > now {
			return false
		}
		if p.next.CompareAndSwap(next, int64(due+p.each)) {
			return true
		}
	}
}
