package epoll

import (
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
)

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
	if l.sessions.all.used > 0 && l.now >= l.sessions.sweepAt {
		l.sessions.endIdle()
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
		return max(min(l.engine.Cfg.HalfClosedTimeout/16, l.engine.Cfg.LookAfter()), time.Millisecond)
	}
	return l.engine.Cfg.LookAfter()
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
	case flushing:
		if l.hasFlushed(c) {
			l.conclude(c)
			return
		}
		l.lookAt(c)
	default:
		l.lookAt(c)
	}
}

// nextDue is when the loop has something to do even if nothing happens.
func (l *loop) nextDue() time.Duration {
	due := l.timers.wake()
	if l.sessions.all.used > 0 {
		due = min(due, l.sessions.sweepAt)
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

// lookAt ends a connection of which one side has vanished, or both have been silent for too long after the first end.
func (l *loop) lookAt(c *conn) {
	if l.worksForNobody(c) {
		l.conclude(c)
		return
	}
	delivered, cfg := uint64(0), &l.engine.Cfg
	for _, way := range [...]struct{ s, other *side }{{&c.client, &c.backend}, {&c.backend, &c.client}} {
		d := sockopt.InspectTCP(int(way.s.fd))
		if !c.end.HasFinished(way.s.which) && cfg.HasVanished(d) {
			l.ended(c, way.other, way.s, engine.ErrVanished)
			return
		}
		delivered += way.s.sent + d.Acked
	}
	if c.phase != settled && c.end.IsSilent(l.now, delivered, cfg.HalfClosedTimeout) {
		l.conclude(c)
	}
}
