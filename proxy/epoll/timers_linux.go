package epoll

import (
	"math/bits"
	"time"
)

// Timers say when each connection of a loop is looked at next. Setting, stopping and finding the next one
// take constant time, so a turn pays for the connections that are due and not for all that wait.
//
//	ring 0:   5 ms   c ⇄ c ⇄ c     every member of a ring was put there for the same time,
//	ring 1:  10 ms   c             so a ring is in order by itself: new members go to its end
//	ring 2:  20 ms   c ⇄ c
//	  …
//
// A connection waits in the ring with the longest time that is not longer than its own. When that
// time is over it is due, or moves on to a ring for the rest. A timer is at most one timerStep late.
type timers struct {
	rings [timerRings]ring
	used  uint32 // bit k is set while ring k has members
}

const (
	timerStep  = 5 * time.Millisecond
	timerRings = 16 // the last holds its members for 164 s
)

// never is later than any due time.
const never = time.Duration(1<<63 - 1)

// A ring is a list of connections, linked to one another.
type ring struct{ root conn }

func (t *timers) init() {
	for k := range t.rings {
		root := &t.rings[k].root
		root.prev, root.next = root, root
	}
}

// set makes c due at a time, and forgets when it was due before. now must not decrease from call to call.
func (t *timers) set(c *conn, now, due time.Duration) {
	t.stop(c)
	steps := max(1, (due-now)/timerStep)
	k := min(bits.Len64(uint64(steps)), timerRings) - 1
	root := &t.rings[k].root
	c.due, c.wake, c.ring = due, now+timerStep<<k, uint8(k)
	c.prev, c.next = root.prev, root
	root.prev.next, root.prev = c, c
	t.used |= 1 << k
}

// stop makes c never due. It need not have been set.
func (t *timers) stop(c *conn) {
	if c.next == nil {
		return
	}
	c.prev.next, c.next.prev = c.next, c.prev
	c.prev, c.next = nil, nil
	if root := &t.rings[c.ring].root; root.next == root {
		t.used &^= 1 << c.ring
	}
}

// first returns the connection whose time in its ring ends first, or nil.
func (t *timers) first() (first *conn) {
	for used := t.used; used != 0; used &= used - 1 {
		if c := t.rings[bits.TrailingZeros32(used)].root.next; first == nil || c.wake < first.wake {
			first = c
		}
	}
	return first
}

// wake is when next has something to do; never when no timer is set.
func (t *timers) wake() time.Duration {
	if c := t.first(); c != nil {
		return c.wake
	}
	return never
}

// next takes the first connection out of its ring if its time there is over. If it is due, its timer has
// ended; otherwise it waits on in another ring. It returns nil when no ring has anything to do yet.
func (t *timers) next(now time.Duration) (c *conn, isDue bool) {
	if c = t.first(); c == nil || c.wake > now {
		return nil, false
	}
	if c.due > now {
		t.set(c, now, c.due)
		return c, false
	}
	t.stop(c)
	return c, true
}
