package epoll

import (
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
)

// How a connection ends here is what the table of [relay] says. This file tells it in the words of
// the epoll engine: what each system call's failure means, and what is done then.

// unread takes in that a read from src has found nothing, or failed.
func (l *loop) unread(c *conn, dst, src *side, errno unix.Errno) {
	switch errno {
	case unix.EAGAIN:
		src.full = 0
		src.readable, src.urgent = false, false
	case unix.ENOMEM, unix.ENOBUFS: // it stays readable
		l.starve(c)
	case 0:
		if src.broken { // the error that this end hides was taken by a write
			l.breakOff(c, dst, src)
			return
		}
		l.finish(c, dst, src)
	default:
		l.lose(c, dst, src, errno)
	}
}

// finish takes in that src has nothing more to say. All that it said has been written to dst: while a side is
// stalled the other is not read.
func (l *loop) finish(c *conn, dst, src *side) {
	src.finished = true
	if src == &c.client {
		l.because(c, traffic.ClientFinished)
	} else {
		l.because(c, traffic.EndpointFinished)
	}
	switch {
	case dst.broken && dst.finished:
		l.breakOff(c, src, dst)
	case dst.broken:
		l.leave(c, finishing)
	default:
		l.pass(c, dst, src)
	}
}

// pass passes the FIN of src on to dst, which has got all that came before it. When both have
// finished, all is said.
func (l *loop) pass(c *conn, dst, src *side) {
	if dst.finished {
		l.conclude(c)
		return
	}
	if !dst.refuses() && !dst.sentFIN {
		finishSending(int(dst.fd))
		dst.sentFIN = true
	}
	l.leave(c, finishing)
}

// unwritten takes in that dst takes no more. After EPIPE it had sent its FIN before it went: it had
// said all it wanted to. After any other error what it said ends by a reset. The kernel tells of that
// only once, so it is noted: a read would find a clean end where there was none.
func (l *loop) unwritten(c *conn, dst, src *side, errno unix.Errno) {
	l.drop(dst)
	if errno == unix.EPIPE {
		dst.sawEPIPE, dst.readable = true, true
	} else {
		l.name(c, dst, errno)
		dst.broken, dst.readable = true, true
	}
	src.readable = true // to be thrown away
	l.leave(c, finishing)
	l.interrupt(c)
}

// lose takes in that src was reset, or has vanished.
func (l *loop) lose(c *conn, dst, src *side, errno unix.Errno) {
	l.name(c, src, errno)
	src.broken = true
	l.breakOff(c, dst, src)
}

// breakOff takes in that src was reset, or has vanished, and all that it said has been read: once
// that has been delivered, dst is reset.
func (l *loop) breakOff(c *conn, dst, src *side) {
	src.finished = true
	if dst.refuses() || !dst.stalled() && !unacknowledged(int(dst.fd)) {
		l.conclude(c)
		return
	}
	l.leave(c, flushing)
}

// discard reads and throws away what src goes on sending although dst takes no more: else src might
// be stuck in its writes before it has heard all that dst had to say.
func (l *loop) discard(c *conn, dst, src *side) (n int, more bool) {
	if dst.sawEPIPE && l.works(c) {
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

// works tells whether the backend of c has the client's whole request, and so works for nobody: its
// client is gone.
func (l *loop) works(c *conn) bool {
	return c.client.finished && !unacknowledged(int(c.backend.fd))
}

// because notes why c ends, if it is the first reason. That a side has finished gives way to any
// other.
func (l *loop) because(c *conn, why traffic.Reason) {
	finishes := func(r traffic.Reason) bool { return r == traffic.ClientFinished || r == traffic.EndpointFinished }
	if c.why == engine.Undecided || finishes(traffic.Reason(c.why)) && !finishes(why) {
		c.why = int8(why)
	}
}

// name notes that c ends because side s has broken off.
func (l *loop) name(c *conn, s *side, errno unix.Errno) {
	ends := engine.BackendEnds
	if s == &c.client {
		ends = engine.ClientEnds
	}
	l.because(c, ends.Of(errno))
}

// leave lets c end when nothing is delivered for too long.
func (l *loop) leave(c *conn, p phase) {
	if c.phase == finishing || c.phase == flushing {
		if c.phase != p && p == flushing {
			l.enter(c, flushing)
		}
		return
	}
	c.delivered, c.since = 0, l.now
	l.enter(c, p)
}

// conclude ends c: whoever has been sent the other's FIN, or can be sent it by closing, is closed, and
// whoever has not is reset: what was cut off never looks complete.
func (l *loop) conclude(c *conn) {
	if c.client.sawEPIPE {
		l.because(c, traffic.ClientReset)
	}
	if c.backend.sawEPIPE {
		l.because(c, traffic.EndpointReset)
	}
	l.closeSide(c, &c.client, &c.backend)
	l.closeSide(c, &c.backend, &c.client)
	l.release(c)
}

func (l *loop) closeSide(c *conn, s, other *side) {
	if !s.open {
		return
	}
	clean := s.sentFIN || other.finished && !other.broken
	if !clean { // one that has vanished too: else the kernel would go on with it for minutes
		linger(int(s.fd))
	}
	l.drop(s)
	closeFD(int(s.fd))
	s.open = false
}

// end ends c before its time.
func (l *loop) end(c *conn, why traffic.Reason) {
	l.because(c, why)
	l.cut(c)
	l.release(c)
}

// cut resets both sides.
func (l *loop) cut(c *conn) {
	for _, s := range [...]*side{&c.client, &c.backend} {
		if s.open {
			linger(int(s.fd))
			l.drop(s)
			closeFD(int(s.fd))
			s.open = false
		}
	}
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
		b.TurnAway(traffic.Reason(c.why), failed)
	} else {
		b.Sent, b.Received = c.backend.sent, c.client.sent
		b.End(traffic.Reason(c.why))
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

// How long a connection counts as young; how soon one that flushes is looked at first, and how
// long it waits at most between two looks: each wait is twice the one before.
const (
	youth      = time.Second
	flushFirst = 5 * time.Millisecond
	flushLast  = time.Second
)

// looksATurn is how many timers may end in one turn. A look takes a few system calls, 20 us when it ends
// a connection. The rest is looked at in the next turns, with events dealt with in between.
const looksATurn = 64

// expire looks at the connections, and at the sessions, whose time has come.
func (l *loop) expire() {
	for n := range looksATurn {
		if n >= leastATurn && l.late() {
			break
		}
		c, isDue := l.timers.next(l.now)
		if c == nil {
			break
		}
		if isDue {
			l.look(c)
		}
	}
	if l.sessions.used > 0 && l.now >= l.sweepSessions {
		l.idleSessions()
	}
	l.resume()
}

// lookEvery is how long c waits for its next look.
func (l *loop) lookEvery(c *conn) time.Duration {
	switch c.phase {
	case dialling:
		return dialTick
	case young:
		return youth
	case flushing:
		return min(flushFirst<<min(c.looks, 16), flushLast)
	case finishing:
		return max(l.engine.Cfg.HalfClosedTimeout/16, time.Millisecond)
	}
	return l.engine.lookAfter
}

// look looks at one connection, and sets its timer anew unless that has ended it.
func (l *loop) look(c *conn) {
	p := c.phase
	if p == young {
		keepWatch(int(c.backend.fd), l.engine.Cfg.TCPKeepAlive)
		l.enter(c, settled)
		return
	}
	c.looks = min(c.looks+1, 16)
	wait := l.lookEvery(c)
	l.timers.set(c, l.now, l.now+wait)
	switch p {
	case dialling:
		l.impatient(c)
		if c.phase == dialling {
			l.timers.set(c, l.now, l.patience(c))
		}
	case settled:
		l.lookAt(c)
	case flushing:
		l.flushed(c)
	case finishing:
		l.silent(c)
	}
}

// nextDue is when the loop has something to do even if nothing happens.
func (l *loop) nextDue() time.Duration {
	due := l.timers.wake()
	if l.sessions.used > 0 {
		due = min(due, l.sweepSessions)
	}
	if len(l.paused)+len(l.starved) > 0 {
		due = min(due, l.resumeAt)
	}
	return due
}

// setAlarm makes sure that a wait ends at a time.
func (l *loop) setAlarm(due time.Duration) {
	if l.alarmAt > l.now && l.alarmAt <= due {
		return // it will go off early enough
	}
	if l.alarmAt = due; due < never {
		l.alarm.Reset(due - monotonic.Now())
	}
}

// lookAt looks whether both sides of a connection are still there, because keepalive cannot while we
// have sent one something that it has not acknowledged: then the kernel sends that again, instead
// of probes, for a quarter of an hour (tcp_retries2, tcp(7)).
func (l *loop) lookAt(c *conn) {
	for _, s := range [...]*side{&c.client, &c.backend} {
		d := sockopt.InspectTCP(int(s.fd))
		if d.Pending && d.Unanswered >= engine.Probes && d.Silent >= l.engine.lookAfter {
			if s == &c.client {
				l.lose(c, &c.backend, s, unix.ETIMEDOUT)
			} else {
				l.lose(c, &c.client, s, unix.ETIMEDOUT)
			}
			return
		}
	}
}

// flushed ends a connection of which one side was broken when the other has got all that it said.
func (l *loop) flushed(c *conn) {
	dst := &c.client
	if c.client.broken {
		dst = &c.backend
	}
	if !dst.stalled() && !unacknowledged(int(dst.fd)) || dst.refuses() {
		l.conclude(c)
		return
	}
	l.silent(c)
}

// silent ends a connection of which a direction has ended when nothing has been delivered for too long.
// What the kernel still holds for a slow reader counts as it is delivered.
func (l *loop) silent(c *conn) {
	if c.client.sawEPIPE && l.works(c) {
		l.conclude(c)
		return
	}
	delivered := c.client.sent + c.backend.sent + sockopt.InspectTCP(int(c.client.fd)).Acked + sockopt.InspectTCP(int(c.backend.fd)).Acked
	if delivered != c.delivered {
		c.delivered, c.since = delivered, l.now
		return
	}
	if l.now-c.since >= l.engine.Cfg.HalfClosedTimeout {
		l.because(c, traffic.HalfClosedTimeout)
		l.conclude(c)
	}
}
