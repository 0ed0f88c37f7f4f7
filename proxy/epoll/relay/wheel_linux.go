package relay

import (
	"math/bits"
	"time"

	"kubeproxy/internal/monotonic"
)

// A wheel is a timer wheel: it says when each of its members is due. Setting, stopping and finding the next one take constant time. A turn of a loop so pays for the members that are due, and not for all that wait.
//
//	ring 0:   5 ms   m ⇄ m ⇄ m     every member of a ring was put there for the same time,
//	ring 1:  10 ms   m             so a ring is in order by itself: new members go to its end
//	ring 2:  20 ms   m ⇄ m
//	  …
//
// A member waits in the ring with the longest time that is not longer than its own. When that
// time is over it is due, or moves on to a ring for the rest. A timer is at most one [wheelStep] late.
//
// A member has a [timer] in it, by which it is linked to others. Init has to be called first. A wheel is not safe for concurrent use.
type wheel[T any, M member[T]] struct {
	rings [rings]T // the root of each ring: the ring leads from it to it
	used  uint32   // bit k is set while ring k has members, or until first has found that it has none any more
}

// A member is a pointer to what has a timer in it.
type member[T any] interface {
	*T
	Timer() *timer[T]
}

// A timer is what a member has in it. The zero value is not set.
type timer[T any] struct {
	prev, next *T            // in its ring
	due, wake  time.Duration // when it is due, and when its time in the ring is over
}

const (
	// wheelStep is the time of the first ring.
	wheelStep = 5 * time.Millisecond
	rings     = 16 // the last holds its members for 164 s
)

// Init makes w ready, without members.
func (w *wheel[T, M]) Init() {
	for k := range w.rings {
		root := &w.rings[k]
		r := M(root).Timer()
		r.prev, r.next = root, root
	}
}

// Set makes m due at a time, and forgets when it was due before. now must not decrease from call to call.
func (w *wheel[T, M]) Set(m *T, now, due time.Duration) {
	w.Stop(m)
	steps := max(1, (due-now)/wheelStep)
	k := min(bits.Len64(uint64(steps)), rings) - 1
	root, t := &w.rings[k], M(m).Timer()
	r := M(root).Timer()
	t.due, t.wake = due, now+wheelStep<<k
	t.prev, t.next = r.prev, root
	M(r.prev).Timer().next, r.prev = m, m
	w.used |= 1 << k
}

// Stop makes m never due. It need not have been set.
func (w *wheel[T, M]) Stop(m *T) {
	t := M(m).Timer()
	if t.next == nil {
		return
	}
	M(t.prev).Timer().next, M(t.next).Timer().prev = t.next, t.prev
	t.prev, t.next = nil, nil
}

// first returns the member whose time in its ring ends first, or nil.
func (w *wheel[T, M]) first() (first *T) {
	for used := w.used; used != 0; used &= used - 1 {
		k := bits.TrailingZeros32(used)
		root := &w.rings[k]
		m := M(root).Timer().next
		switch {
		case m == root:
			w.used &^= 1 << k
		case first == nil, M(m).Timer().wake < M(first).Timer().wake:
			first = m
		}
	}
	return first
}

// Wake is when Next has something to do; monotonic.Never when no timer is set.
func (w *wheel[T, M]) Wake() time.Duration {
	if m := w.first(); m != nil {
		return M(m).Timer().wake
	}
	return monotonic.Never
}

// Next takes the first member out of its ring if its time there is over. If it is due, its timer has
// ended; otherwise it waits on in another ring. It returns nil when no ring has anything to do yet.
func (w *wheel[T, M]) Next(now time.Duration) (m *T, isDue bool) {
	m = w.first()
	if m == nil {
		return nil, false
	}
	t := M(m).Timer()
	switch {
	case t.wake > now:
		return nil, false
	case t.due > now:
		w.Set(m, now, t.due)
		return m, false
	}
	w.Stop(m)
	return m, true
}
