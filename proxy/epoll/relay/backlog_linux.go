package relay

import (
	"slices"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/epoll/reactor"
)

// A Backlog has the connections of a loop that go on in a later turn though no event tells of them: those that were interrupted,
// because the turn had no time or room for more, and those that the kernel had no memory for.
type Backlog struct {
	Turn       *reactor.Turn
	unfinished []*Conn // interrupted in this turn, to go on in the next
	resumed    []*Conn // empty; the room of those that went on in the last

	starved  []*Conn       // the kernel had no memory for them
	resumeAt time.Duration // of those
}

// interrupt lets c go on in the next turn.
func (b *Backlog) interrupt(c *Conn) {
	if !c.queued {
		c.queued = true
		b.unfinished = append(b.unfinished, c)
	}
}

// starve leaves c alone for a while, because the kernel had no memory for it. No event tells when it has.
func (b *Backlog) starve(c *Conn) {
	if !c.queued {
		c.queued = true
		if len(b.starved) == 0 {
			b.resumeAt = b.Turn.Now + starvedPause
		}
		b.starved = append(b.starved, c)
	}
}

const starvedPause = 20 * time.Millisecond

// due yields connections that were interrupted before, as many as the turn has time and room for; the others come first in the next.
func (b *Backlog) due(yield func(*Conn) bool) {
	if len(b.unfinished) == 0 {
		return
	}
	all := b.unfinished
	b.unfinished = b.resumed // for those that are interrupted once more
	n := 0
	for more := true; more && n < min(len(all), backlogATurn) && (n < reactor.LeastATurn || !b.Turn.Late()); n++ {
		c := all[n]
		c.queued = false
		if c.live && c.IsRelayed() {
			more = yield(c)
		}
	}
	b.unfinished = slices.Insert(b.unfinished, 0, all[n:]...)
	clear(all)
	b.resumed = all[:0]
}

// Waiting is how many connections go on in the next turn, or a later one, though nothing happens.
func (b *Backlog) Waiting() int { return len(b.unfinished) }

// ResumesAt is when Resume has something to do.
func (b *Backlog) ResumesAt() time.Duration {
	if len(b.starved) > 0 {
		return b.resumeAt
	}
	return monotonic.Never
}

// Resume has connections go on in the next turn for which there was no memory.
func (b *Backlog) Resume() {
	if b.ResumesAt() <= b.Turn.Now {
		b.unfinished = append(b.unfinished, b.starved...)
		clear(b.starved)
		b.starved = b.starved[:0]
	}
}
