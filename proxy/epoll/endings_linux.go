package epoll

import (
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
)

// How a connection ends is what [engine.Teardown] says. This file tells it what system calls find, and does what it answers.

// unread handles a read from src that has found nothing, or failed.
func (l *loop) unread(c *conn, dst, src *side, errno unix.Errno) {
	switch errno {
	case unix.EAGAIN:
		src.full = 0
		src.readable, src.urgent = false, false
	case unix.ENOMEM, unix.ENOBUFS: // it stays readable
		l.starve(c)
	case 0:
		l.ended(c, dst, src, nil)
	default:
		l.ended(c, dst, src, errno)
	}
}

// ended does what is to be done when src has ended: by FIN, or by err. All that it said has been written to dst: while a side is
// stalled the other is not read.
func (l *loop) ended(c *conn, dst, src *side, err error) {
	switch c.end.Ended(src.which, err) {
	case engine.TCPFinish:
		finishSending(int(dst.fd))
		l.await(c, finishing)
	case engine.TCPWait:
		l.await(c, finishing)
	case engine.TCPFlush:
		if l.hasFlushed(c) {
			l.conclude(c)
		} else {
			l.await(c, flushing)
		}
	case engine.TCPEnd:
		l.conclude(c)
	}
}

// unwritten handles a write to dst that has failed: dst takes no more.
func (l *loop) unwritten(c *conn, dst, src *side, errno unix.Errno) {
	l.drop(dst)
	c.end.Unwritable(dst.which, errno)
	dst.readable, src.readable = true, true // the latter to be thrown away
	l.await(c, finishing)
	l.interrupt(c)
}

// discard reads and throws away what src goes on sending although dst takes no more.
func (l *loop) discard(c *conn, dst, src *side) (n int, more bool) {
	if l.worksForNobody(c) {
		l.conclude(c)
		return 0, false
	}
	n, errno := receive(int(src.fd), l.buffer[:])
	if n <= 0 || errno != 0 {
		l.unread(c, dst, src, errno)
		return 0, false
	}
	return n, true
}

// worksForNobody reports whether the backend of c has the whole request of a client that is gone.
func (l *loop) worksForNobody(c *conn) bool {
	return c.end.WorksForNobody() && !unacknowledged(int(c.backend.fd))
}

// hasFlushed reports whether the side of c that survives has got all that the other said, or takes no more.
func (l *loop) hasFlushed(c *conn) bool {
	dst := &c.client
	if c.end.Survivor() == engine.BackendSide {
		dst = &c.backend
	}
	return c.end.Refuses(dst.which) || !dst.stalled() && !unacknowledged(int(dst.fd))
}

// await lets c end when it has flushed, or nothing is delivered for too long.
func (l *loop) await(c *conn, p phase) {
	if c.phase != flushing && c.phase != p {
		l.enter(c, p)
	}
}

// conclude ends c in an orderly way.
func (l *loop) conclude(c *conn) {
	for _, s := range [...]*side{&c.client, &c.backend} {
		l.closeSide(s, c.end.IsClean(s.which))
	}
	l.release(c)
}

// cut resets both sides.
func (l *loop) cut(c *conn) {
	l.closeSide(&c.client, false)
	l.closeSide(&c.backend, false)
}

// closeSide closes a side, if it is open, or resets it.
func (l *loop) closeSide(s *side, clean bool) {
	if !s.open {
		return
	}
	if !clean {
		linger(int(s.fd))
	}
	l.drop(s)
	closeFD(int(s.fd))
	s.open = false
}

// end ends c before its time.
func (l *loop) end(c *conn, why traffic.Reason) {
	c.end.Because(why)
	l.cut(c)
	l.release(c)
}

// drop throws away what is held for a side.
func (l *loop) drop(s *side) {
	if s.held != nil {
		l.tails.giveBack(s.held)
		s.held = nil
	}
	if s.bulk != nil {
		l.pipes.giveBack(s.bulk)
		s.bulk = nil
	}
}

// release closes the books of c and frees it.
func (l *loop) release(c *conn) {
	var failed []engine.Failure
	if c.dial != nil {
		failed = l.abandon(c)
	}
	if b := &c.record; b.Endpoint == nil {
		b.TurnAway(c.end.Reason(), failed)
	} else {
		b.Sent, b.Received = c.backend.sent, c.client.sent
		b.End(c.end.Reason())
	}
	l.free(c)
}

// free gives back what c has.
func (l *loop) free(c *conn) {
	l.enter(c, noPhase)
	l.forgetLifetimes(c)
	l.drop(&c.backend) // what the client said early, when no endpoint was found for it
	l.engine.Budget.Release(2)
	c.record = engine.Connection{}
	c.live = false
	l.conns.remove(c.index)
	l.load.Add(-1)
}
