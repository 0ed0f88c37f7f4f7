package epoll

import "time"

// A turn is the present turn of a loop, as each of its parts knows it.
type turn struct {
	number uint64               // how many there have been
	now    time.Duration        // when it began
	clock  func() time.Duration // monotonic.Now, but in tests
}

// begin begins the next turn.
func (t *turn) begin() {
	t.now = t.clock()
	t.number++
}

// turnTime is how much time a turn has for work that can wait: accepting more clients, bulk, looks, requests. Once it is
// used up, each part of the turn does no more than its minimum. A connection that says little so waits for
// about this long, whatever the others do.
//
// leastATurn is the minimum of the parts that have a queue, so that each queue moves on in every turn.
const (
	turnTime   = time.Millisecond
	leastATurn = 8
)

// late reports whether the turn has used up its time.
func (t *turn) late() bool { return t.clock()-t.now >= turnTime }
