package epoll

import (
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
)

// A conn is one connection of a client, from its acceptance to its end: while an endpoint is looked
// for it has a dial, and after that a backend. It is what an idle client costs, so it is small, and
// has no buffer.
type conn struct {
	client, backend side
	port            *epollTCP
	dial            *dial // while an endpoint is looked for
	record          engine.Connection

	prev, next *conn         // in its ring of timers
	due, wake  time.Duration // when it is looked at, and when its time in the ring is over

	lifetimes []func() bool // undo what has c ended by a removal; none where removal ends nothing

	end engine.Teardown // which says what is done about its end

	index      int32
	generation uint32
	live       bool
	queued     bool // it is among the loop's unfinished
	phase      phase
	ring       uint8
	looks      uint8 // how often it has been looked at in this phase
}

// A side is one of the two TCP connections of a conn.
type side struct {
	fd       int32
	which    engine.TCPSide
	full     uint8 // reads in a row that filled the buffer
	open     bool
	sent     uint64 // bytes written to it
	held     *tail  // is still to be written to it
	bulk     *pipe  // and so is what is in here
	readable bool   // a read may find something: the kernel said so, and no read has denied it
	wantsOut bool   // the kernel tells when it can be written to again
	hungUp   bool   // the kernel has told of an end: that a read is short does not mean that there is no more
	urgent   bool   // it has told of urgent data: likewise, for a read ends before that
}

// stalled tells whether the side has yet to take what it was sent before.
func (s *side) stalled() bool { return s.held != nil || s.bulk != nil && s.bulk.n > 0 }

// isBusy reports whether the side has said more than fits into the buffer, or has yet to take what it was sent.
func (s *side) isBusy() bool { return s.full > 0 || s.stalled() }

// stir notes what the kernel tells of the side.
func (s *side) stir(mask uint32) {
	if mask&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		s.readable, s.hungUp = true, true
	} else if mask&(unix.EPOLLIN|unix.EPOLLPRI) != 0 {
		s.readable = true
	}
	if mask&unix.EPOLLPRI != 0 {
		s.urgent = true
	}
}

// token is what events of a side bear.
func (c *conn) token(kind tokenKind) token { return token{kind, c.index, c.generation} }

// A phase says what a conn is looked at for when its timer ends.
type phase uint8

const (
	noPhase   phase = iota
	dialling        // it looks for an endpoint
	young           // it is being relayed, but not for long yet
	settled         // it has been for longer
	flushing        // one side is broken, and the other is still to get what it said
	finishing       // a direction has ended in another way
)

// enter moves c to a phase, and sets its timer for the first look.
func (l *loop) enter(c *conn, p phase) {
	c.phase, c.looks = p, 0
	if p == noPhase {
		l.timers.stop(c)
	} else {
		l.timers.set(c, l.now, l.now+l.lookEvery(c))
	}
}

// news is what the kernel tells of each side. It tells of it once.
const news = unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLET

// relay begins to carry bytes between the client of c and the backend that has answered. The kernel has told of
// that by mask; or, when that is 0, it does not tell of the backend yet.
func (l *loop) relay(c *conn, fd int32, mask uint32) {
	c.backend.fd, c.backend.open, c.backend.wantsOut = fd, true, mask != 0
	l.enter(c, young)
	if mask == 0 {
		if err := l.watch(int(fd), c.token(backendSide), news); err != nil {
			l.end(c, traffic.DescriptorLimit)
			return
		}
	}
	if !c.backend.stalled() || l.flush(c, &c.backend, &c.client) {
		l.pump(c, &c.backend, &c.client)
	}
	if !c.live {
		return
	}
	// Only now is the kernel asked to tell of the client: what was read just now is no news any more.
	if err := l.watch(int(c.client.fd), c.token(clientSide), news); err != nil {
		l.end(c, traffic.DescriptorLimit)
		return
	}
	l.stirred(c, &c.backend, &c.client, mask)
}

// stirred takes in what the kernel tells of side s of c.
func (l *loop) stirred(c *conn, s, other *side, mask uint32) {
	s.stir(mask)
	if mask&unix.EPOLLOUT != 0 && s.stalled() {
		if l.flush(c, s, other) && other.readable {
			l.pump(c, s, other)
		}
	}
	if c.live && s.readable && s.open {
		l.pump(c, other, s)
	}
}

// goOn goes on in both directions.
func (l *loop) goOn(c *conn) {
	for _, way := range [...]struct{ dst, src *side }{{&c.backend, &c.client}, {&c.client, &c.backend}} {
		if c.live && (!way.dst.stalled() || l.flush(c, way.dst, way.src)) {
			l.pump(c, way.dst, way.src)
		}
	}
}

// How much one direction may carry before it is others' turn, and how much is read at a time when
// it passes through our memory. The latter is also the most that is held for a side that stalls.
const (
	turnBudget = 256 << 10
	chunk      = 16 << 10
)

// How much all directions that carry in bulk may move in a turn, about, and how much each may however many they
// are: whoever says little has to wait until the turn is over. Up to eight may move a pipe full each, for
// that is cheapest. A turn moves at most turnTotal and leastBudget for each event, three times turnTotal in all, or 10 ms.
const (
	turnTotal   = 8 << 20
	leastBudget = 64 << 10
)

// share is how much each of so many that carry in bulk may move in a turn.
func share(many int) int { return max(leastBudget, turnTotal/max(1, many)) }

// pump carries what src has sent to dst until there is no more for now, dst stalls, the budget or the time of the turn is
// used up, or one of them ends. A slow dst so holds up src: the kernel's buffers and one of ours
// are all that is held for it.
func (l *loop) pump(c *conn, dst, src *side) {
	budget := min(turnBudget, l.share)
	if l.moved > turnTotal {
		budget = leastBudget
	}
	for src.readable && !c.end.HasFinished(src.which) && !dst.stalled() {
		if budget <= 0 {
			l.interrupt(c)
			return
		}
		var n int
		var more bool
		switch {
		case c.end.Refuses(dst.which):
			n, more = l.discard(c, dst, src)
		case src.full >= bulkAfter:
			n, more = l.splice(c, dst, src)
		default:
			n, more = l.copy(c, dst, src)
		}
		l.moved += n
		if !more {
			return
		}
		if budget -= n; src.readable && l.late() {
			budget = 0
		}
	}
}

// interrupt lets c go on in the next turn.
func (l *loop) interrupt(c *conn) {
	if !c.queued {
		c.queued = true
		l.unfinished = append(l.unfinished, c)
	}
}

// copy reads once and writes once. It returns false when there is no more to do for now.
func (l *loop) copy(c *conn, dst, src *side) (n int, more bool) {
	n, errno := receive(int(src.fd), l.buffer[:])
	if n <= 0 || errno != 0 {
		l.unread(c, dst, src, errno)
		return 0, false
	}
	if n < len(l.buffer) {
		src.full = 0
		if !src.hungUp && !src.urgent {
			src.readable = false // that was all there was; what comes now is told anew
		}
	} else if src.full < bulkAfter {
		src.full++
	}
	l.send(c, dst, src, l.buffer[:n])
	return n, c.live
}

// send writes to dst what src said, and holds what does not fit.
func (l *loop) send(c *conn, dst, src *side, b []byte) {
	n, errno := send(int(dst.fd), b)
	if n > 0 {
		l.count(c, dst, n)
	}
	switch {
	case errno == 0 && n == len(b):
		return
	case errno == 0 || errno == unix.EAGAIN:
		dst.held = l.tail(b[max(n, 0):])
		l.wantOut(c, dst)
	case lacksMemory(errno):
		dst.held = l.tail(b)
		l.starve(c)
	default:
		l.unwritten(c, dst, src, errno)
	}
}

// count notes that n bytes were written to dst.
func (l *loop) count(c *conn, dst *side, n int) {
	dst.sent += uint64(n)
	if dst == &c.backend {
		c.record.Claim.Tally.Sent.Add(uint64(n))
	} else {
		c.record.Claim.Tally.Received.Add(uint64(n))
	}
}

// wantOut has the kernel tell when s can be written to again. Most connections never need it.
func (l *loop) wantOut(c *conn, s *side) {
	if s.wantsOut {
		return
	}
	s.wantsOut = true
	kind := clientSide
	if s == &c.backend {
		kind = backendSide
	}
	ev := c.token(kind).event(news | unix.EPOLLOUT)
	_ = epollCtl(l.epfd, unix.EPOLL_CTL_MOD, int(s.fd), &ev) // it is watched
}

// flush writes what is held for dst, and tells whether src may go on.
func (l *loop) flush(c *conn, dst, src *side) bool {
	if t := dst.held; t != nil {
		n, errno := send(int(dst.fd), t.rest())
		if n > 0 {
			l.count(c, dst, n)
			t.from += n
		}
		switch {
		case len(t.rest()) == 0:
			l.tails.giveBack(t)
			dst.held = nil
		case errno == 0 || errno == unix.EAGAIN:
			l.wantOut(c, dst)
			return false
		case lacksMemory(errno):
			l.starve(c)
			return false
		default:
			l.unwritten(c, dst, src, errno)
			return c.live
		}
	}
	if dst.bulk != nil && !l.unpipe(c, dst, src) {
		return false
	}
	return c.live
}

// A tail is the end of what was read, which did not fit into a socket any more.
type tail struct {
	from, to int
	data     [chunk]byte
}

func (t *tail) rest() []byte { return t.data[t.from:t.to] }

func (l *loop) tail(b []byte) *tail {
	t := l.tails.take()
	t.from, t.to = 0, copy(t.data[:], b)
	return t
}
