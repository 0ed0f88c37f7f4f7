package reactor

import (
	"slices"
	"sync/atomic"
)

// Requests are what other goroutines ask of a loop. It is how they reach what the loop owns. Any goroutine may call Do, Begin, Call and
// InSteps; the rest is for the loop. The loop waits for no lock: thousands of goroutines may ask at once, and the system may run one of them in the middle of
// that, and then the loop.
type Requests struct {
	Poller *Poller  // which they wake up
	posted []func() // taken from asked, and not met yet
	room   []func() // for posted, when all were met

	// AtRest is set while the loop rests: the caller of Call acts in its place, and ensures that no other goroutine does.
	AtRest bool

	asked atomic.Pointer[request] // the newest; or ended
}

// A request is a step that the loop is asked for, and the one that was asked for before it.
type request struct {
	step   func()
	before *request
}

// ended is in asked once the loop has ended: no request can be added to it.
var ended = new(request)

// Do has the loop call f in one of its next turns, in the order of the calls, and reports whether it will: false once it
// has ended. f is one step of the loop: it must not take longer than a millisecond, nor wait for anything.
func (q *Requests) Do(f func()) bool {
	r := &request{step: f, before: q.asked.Load()}
	for r.before != ended && !q.asked.CompareAndSwap(r.before, r) {
		r.before = q.asked.Load()
	}
	if r.before == nil { // else the loop has been woken up for that one
		q.Poller.Wake()
	}
	return r.before != ended
}

// PlacesAStep is how many connections, or places of UDP sessions, one step looks through to end them. It takes 20 us to end one.
const PlacesAStep = 64

// ListedAStep is how many connections, or places of UDP sessions, one step looks at to list them. It takes 18 us for each, most of it for what the
// kernel says of the two sockets: with 64, each client beside would wait up to 1.2 ms for each step.
const ListedAStep = 8

// InSteps has the loop call step with 0, and then with what it returned the last time, until that is negative, and waits
// for the end. Events are dealt with in between.
func (q *Requests) InSteps(step func(from int) (next int)) {
	for from := 0; from >= 0; {
		if !q.Call(func() { from = step(from) }) {
			return
		}
	}
}

// Call has the loop call f, and waits until it has.
func (q *Requests) Call(f func()) bool {
	done, ok := q.Begin(f)
	<-done
	return ok
}

// Done is a channel as Begin returns it, of a call that is over.
var Done = func() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}()

// Begin has the loop call f, and returns a channel that is closed when it has. false: the loop has ended, and never will.
func (q *Requests) Begin(f func()) (done chan struct{}, ok bool) {
	done = make(chan struct{})
	call := func() { f(); close(done) }
	if q.AtRest {
		call()
		return done, true
	}
	if ok = q.Do(call); !ok {
		close(done)
	}
	return done, ok
}

// RequestsATurn is how many requests are met in a turn. One that begins to serve a client takes about 50 us.
const RequestsATurn = 64

// Meet does what was asked for, as much as the turn has room for. What is asked for meanwhile is left to the next turn.
func (q *Requests) Meet(t *Turn) {
	q.take()
	for n := 0; n < RequestsATurn && len(q.posted) > 0 && (n < LeastATurn || !t.Late()); n++ {
		q.meetOne()
	}
	// Requests that came while others were left over have woken up the loop already, and do so only once.
	q.take()
}

func (q *Requests) meetOne() {
	f := q.posted[0]
	q.posted[0] = nil
	q.posted = q.posted[1:]
	f()
}

// MeetAll does all that was asked for of a loop at rest, and reports whether that was anything.
func (q *Requests) MeetAll() (some bool) {
	for q.take(); len(q.posted) > 0; q.take() {
		q.meetOne()
		some = true
	}
	return some
}

// Left reports whether some of what was asked for is left to the next turn.
func (q *Requests) Left() bool { return len(q.posted) > 0 }

// take takes what was asked for, the oldest first, unless some of the last time is left.
func (q *Requests) take() {
	if newest := q.asked.Load(); len(q.posted) > 0 || newest == nil || newest == ended {
		return
	}
	q.posted = q.room[:0]
	for r := q.asked.Swap(nil); r != nil; r = r.before {
		q.posted = append(q.posted, r.step)
	}
	slices.Reverse(q.posted)
	q.room = q.posted
}

// Close has nothing more be asked for, unless there are requests to be met. It reports whether that is so.
func (q *Requests) Close() bool {
	return len(q.posted) == 0 && (q.asked.CompareAndSwap(nil, ended) || q.asked.Load() == ended)
}
