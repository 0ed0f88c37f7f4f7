package epoll

import (
	"slices"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/epoll/reactor"
)

// A backlog has the connections of a loop that go on in a later turn though no event tells of them: those that were interrupted,
// because the turn had no time or room for more, and those that the kernel had no memory for.
type backlog struct {
	turn       *reactor.Turn
	unfinished []*conn // interrupted in this turn, to go on in the next
	resumed    []*conn // empty; the room of those that went on in the last

	starved  []*conn       // the kernel had no memory for them
	resumeAt time.Duration // of those
}

// interrupt lets c go on in the next turn.
func (b *backlog) interrupt(c *conn) {
	if !c.queued {
		c.queued = true
		b.unfinished = append(b.unfinished, c)
	}
}

// starve leaves c alone for a while, because the kernel had no memory for it. No event tells when it has.
func (b *backlog) starve(c *conn) {
	if !c.queued {
		c.queued = true
		if len(b.starved) == 0 {
			b.resumeAt = b.turn.Now + starvedPause
		}
		b.starved = append(b.starved, c)
	}
}

const starvedPause = 20 * time.Millisecond

// backlogATurn is how many connections go on in a turn. Each may move leastBudget at least, and all together turnTotal.
const backlogATurn = turnTotal / leastBudget

// due yields connections that were interrupted before, as many as the turn has time and room for; the others come first in the next.
func (b *backlog) due(yield func(*conn) bool) {
	if len(b.unfinished) == 0 {
		return
	}
	all := b.unfinished
	b.unfinished = b.resumed // for those that are interrupted once more
	n := 0
	for more := true; more && n < min(len(all), backlogATurn) && (n < reactor.LeastATurn || !b.turn.Late()); n++ {
		c := all[n]
		c.queued = false
		if c.live && c.isRelayed() {
			more = yield(c)
		}
	}
	b.unfinished = slices.Insert(b.unfinished, 0, all[n:]...)
	clear(all)
	b.resumed = all[:0]
}

// resumesAt is when resume has something to do.
func (b *backlog) resumesAt() time.Duration {
	if len(b.starved) > 0 {
		return b.resumeAt
	}
	return monotonic.Never
}

// resume has connections go on in the next turn for which there was no memory.
func (b *backlog) resume() {
	if b.resumesAt() <= b.turn.Now {
		b.unfinished = append(b.unfinished, b.starved...)
		clear(b.starved)
		b.starved = b.starved[:0]
	}
}
