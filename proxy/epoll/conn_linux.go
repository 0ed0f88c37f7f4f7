package epoll

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/pipes"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/slab"
	"kubeproxy/proxy/epoll/wheel"
	"kubeproxy/proxy/tcp"
)

// A conn is one connection of a client, from its acceptance to its end: while an endpoint is looked
// for it has a dial, and after that a backend. It is what an idle client costs, so it is small, and
// has no buffer.
type conn struct {
	client, backend side
	owner           *atomic.Pointer[engine.Claim] // of the port that the client came to
	dial            *dial                         // while an endpoint is looked for
	record          tcp.Connection

	timer wheel.Timer[conn] // when it is looked at next

	lifetimes []func() bool // undo what has c ended by a removal; none where removal ends nothing

	end tcp.Teardown // which says what is done about its end

	index      int32
	generation uint32
	live       bool
	queued     bool   // it is in the backlog
	headed     bool   // the backend was sent the PROXY header, or it stands first in what is held for it
	lending    uint16 // in which it was last lent to a successor; 0: in none
	phase      phase
	looks      uint8 // how often it has been looked at in this phase
}

// A side is one of the two TCP connections of a conn.
type side struct {
	fd       int32
	which    tcp.Side
	full     uint8 // reads in a row that filled the buffer
	open     bool
	shared   bool        // another process may have its socket as well
	sent     uint64      // bytes written to it
	held     *tail       // is still to be written to it
	bulk     *pipes.Pipe // and so is what is in here
	readable bool        // a read may find something: the kernel said so, and no read has denied it
	wantsOut bool        // the kernel tells when it can be written to again
	hungUp   bool        // the kernel has told of an end: that a read is short does not mean that there is no more
	urgent   bool        // it has told of urgent data: likewise, for a read ends before that
	header   uint16      // bytes of what is held that are our PROXY header, and first: they do not count as sent
}

// stalled reports whether the side has yet to take what it was sent before.
func (s *side) stalled() bool { return s.held != nil || s.bulk != nil && s.bulk.N > 0 }

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

// Timer links c to others that wait: see [wheel.Wheel].
func (c *conn) Timer() *wheel.Timer[conn] { return &c.timer }

// token is what events of a side bear.
func (c *conn) token(kind reactor.Kind) reactor.Token {
	return reactor.Token{Kind: kind, Index: c.index, Generation: c.generation}
}

// What events are about.
const (
	_         reactor.Kind = iota // reactor.Waker
	listening                     // a TCP port has clients
	clientSide
	backendSide
	asking    // a UDP port has datagrams of clients
	answering // the endpoint of a session has sent some
)

// news is what the kernel tells of each side. It tells of it once.
const news = unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLET

// forgetLifetimes has c not be ended by a removal any more.
func (c *conn) forgetLifetimes() {
	for _, stop := range c.lifetimes {
		stop()
	}
	c.lifetimes = nil
}

// A phase says what a conn is looked at for when its timer ends.
type phase uint8

const (
	noPhase   phase = iota
	greeting        // its PROXY header is awaited
	dialling        // it looks for an endpoint
	young           // it is being relayed, but not for long yet
	settled         // it has been for longer
	flushing        // one side is broken, and the other is still to get what it said
	finishing       // a direction has ended in another way
)

// isRelayed reports whether c has its endpoint.
func (c *conn) isRelayed() bool { return c.phase > dialling }

// Conns are the connections of a loop, and when each is looked at next.
type conns struct {
	slab.Slab[conn]
	engine *engine.Base
	turn   *reactor.Turn
	timers wheel.Wheel[conn, *conn]
	load   atomic.Int64 // how many there are, and will have been handed over, for other loops to see
}

func (cs *conns) init(base *engine.Base, t *reactor.Turn) {
	cs.engine, cs.turn = base, t
	cs.timers.Init()
}

// begin makes the connection of a client that was accepted. It is counted in load already.
func (cs *conns) begin(fd int, owner *atomic.Pointer[engine.Claim], record tcp.Connection) *conn {
	c, index, generation := cs.Add()
	*c = conn{
		client:     side{which: tcp.ClientSide, fd: int32(fd), open: true, readable: true}, // it may have said something by now
		backend:    side{which: tcp.BackendSide},
		owner:      owner,
		record:     record,
		index:      index,
		generation: generation,
		live:       true,
	}
	return c
}

// free gives back the place of c, whose sides are closed and whose record has ended.
func (cs *conns) free(c *conn) {
	cs.enter(c, noPhase)
	cs.engine.Budget.Release(2)
	c.record = tcp.Connection{}
	c.live = false
	cs.Remove(c.index)
	cs.load.Add(-1)
}

// enter moves c to a phase, and sets its timer for the first look.
func (cs *conns) enter(c *conn, p phase) {
	c.phase, c.looks = p, 0
	if p == noPhase {
		cs.timers.Stop(c)
	} else {
		cs.timers.Set(c, cs.turn.Now, cs.turn.Now+cs.lookEvery(c))
	}
}

// lookAgain sets the timer of c for the next look in its phase.
func (cs *conns) lookAgain(c *conn) {
	c.looks = min(c.looks+1, 16)
	cs.timers.Set(c, cs.turn.Now, cs.turn.Now+cs.lookEvery(c))
}

// How soon a client that looks for an endpoint is looked at first, and the shortest time between two looks; how long a
// connection counts as young; how soon one that flushes is looked at first, and how
// long it waits at most between two looks: each wait is twice the one before.
const (
	dialTick   = 20 * time.Millisecond
	youth      = time.Second
	flushFirst = 5 * time.Millisecond
	flushLast  = time.Second
)

// lookEvery is how long c waits for its next look.
func (cs *conns) lookEvery(c *conn) time.Duration {
	switch c.phase {
	case greeting:
		return tcp.HeaderTimeout
	case dialling:
		return dialTick
	case young:
		return youth
	case flushing:
		return min(flushFirst<<min(c.looks, 16), flushLast)
	case finishing:
		return max(min(cs.engine.Cfg.HalfClosedTimeout/16, tcp.LookAfter(cs.engine.Cfg.TCPKeepAlive)), time.Millisecond)
	}
	return tcp.LookAfter(cs.engine.Cfg.TCPKeepAlive)
}
