package checks

import (
	"net/netip"
	"sync/atomic"
	"time"

	"kubeproxy/proxy/probe"
	"kubeproxy/registry"
)

// A Key is what a target is: all endpoints with the same key share it.
type Key struct {
	Addr              registry.Addr
	Question          probe.Question
	Interval, Timeout time.Duration
}

// A Watcher receives the results of a target's checks. It must not call the checker.
type Watcher interface {
	// Checked is called when the target fails, and when it passes again.
	Checked(protocol registry.Protocol, passes bool)
}

// A Target is one address that is asked one question.
type Target struct {
	Key
	state atomic.Pointer[State] // never nil

	// Guarded by the checker's mu.
	watchers map[Watcher]struct{} // none: it was given up
	due      time.Duration        // when it is asked next, by the monotonic clock
	index    int                  // in the queue; -1 while it is being asked

	// Of the goroutine of the checker.
	run     int // results in a row that speak against the state
	attempt probe.Attempt
	to      netip.AddrPort
	until   time.Duration // when the attempt has failed
}

// A State is what is known of a target.
type State struct {
	Fails bool
	Known bool      // it has been asked
	Since time.Time // when it began to pass or to fail; zero while it is not known
	Err   string    // of the last check; "" when that passed
}

// State returns what is known of the target.
func (t *Target) State() State { return *t.state.Load() }

// A queue is the targets by when they are due: a heap, as package container/heap wants it.
type queue []*Target

// Len counts the targets.
func (q queue) Len() int { return len(q) }

// Less compares two by when they are due.
func (q queue) Less(i, j int) bool { return q[i].due < q[j].due }

// Swap exchanges two.
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push adds a target at the end.
func (q *queue) Push(t any) {
	t.(*Target).index = len(*q)
	*q = append(*q, t.(*Target))
}

// Pop takes the last target.
func (q *queue) Pop() any {
	old := *q
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*q, t.index = old[:len(old)-1], -1
	return t
}
