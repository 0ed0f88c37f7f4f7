package reactor

import (
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/engine"
)

// Pauses are the ports of a loop that are left alone for a while: they have clients or datagrams in their queues, which cannot be
// had for now.
type Pauses struct {
	Poller   *Poller
	Turn     *Turn
	paused   []*Watched
	resumeAt time.Duration // of them
	resuming []*Watched    // no longer paused, and not watched yet
}

// A Watched is the socket of a port, which a loop watches, or does not while it is paused. FD and Token are
// set once.
type Watched struct {
	FD     int
	Token  Token
	paused bool
	pause  time.Duration // how long the last pause was
}

// Served notes that the port could be served: its next pause is a short one.
func (p *Watched) Served() { p.pause = 0 }

// Forget has the port not be watched again: it is about to be closed.
func (p *Watched) Forget() { p.paused = false }

// Suspend stops watching p for a while: 5 ms, and twice as long each time that this did not help, up to a second.
func (ps *Pauses) Suspend(p *Watched) {
	p.pause = min(max(2*p.pause, engine.FirstPause), engine.LastPause)
	ps.SuspendFor(p, p.pause)
}

// SuspendFor stops watching p for a while. All ports return with the one that returns first.
func (ps *Pauses) SuspendFor(p *Watched, pause time.Duration) {
	ps.Poller.Unwatch(p.FD)
	p.paused = true
	if at := ps.Turn.Now + pause; len(ps.paused) == 0 || at < ps.resumeAt {
		ps.resumeAt = at
	}
	ps.paused = append(ps.paused, p)
}

// Due is when Resume has something to do.
func (ps *Pauses) Due() time.Duration {
	switch {
	case len(ps.resuming) > 0:
		return ps.Turn.Now
	case len(ps.paused) > 0:
		return ps.resumeAt
	}
	return monotonic.Never
}

// resumesATurn is how many ports are watched again in a turn, at a system call each.
const resumesATurn = 256

// Resume watches ports again whose pause is over.
func (ps *Pauses) Resume() {
	if len(ps.paused) > 0 && ps.Turn.Now >= ps.resumeAt {
		ps.resuming, ps.paused = append(ps.resuming, ps.paused...), nil
	}
	for range min(len(ps.resuming), resumesATurn) {
		p := ps.resuming[0]
		ps.resuming = ps.resuming[1:]
		if !p.paused {
			continue // it was closed
		}
		if p.paused = false; ps.Poller.Watch(p.FD, p.Token, unix.EPOLLIN) != nil {
			ps.Suspend(p) // a port that is not watched would never accept again
		}
	}
}
