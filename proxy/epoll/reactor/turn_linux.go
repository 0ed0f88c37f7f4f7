package reactor

import "time"

// A Turn is the present turn of a loop, as each of its parts knows it.
type Turn struct {
	Number uint64               // how many there have been
	Now    time.Duration        // when it began
	Clock  func() time.Duration // monotonic.Now, but in tests
}

// Begin begins the next turn.
func (t *Turn) Begin() {
	t.Now = t.Clock()
	t.Number++
}

// TurnTime is how much time a turn has for work that can wait: accepting more clients, bulk, looks, requests. Once it is
// used up, each part of the turn does no more than its minimum. A connection that says little so waits for
// about this long, whatever the others do.
//
// LeastATurn is the minimum of the parts that have a queue, so that each queue moves on in every turn.
const (
	TurnTime   = time.Millisecond
	LeastATurn = 8
)

// Late reports whether the turn has used up its time.
func (t *Turn) Late() bool { return t.Clock()-t.Now >= TurnTime }
