package epoll

import (
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/engine"
)

// Pauses are the ports of a loop that are left alone for a while: they have clients or datagrams in their queues, which cannot be
// had for now.
type pauses struct {
	poller   *poller
	turn     *turn
	paused   []*portSocket
	resumeAt time.Duration // of them
	resuming []*portSocket // no longer paused, and not watched yet
}

// A portSocket is the socket of a port, which a loop watches, or does not while it is paused.
type portSocket struct {
	fd     int
	token  token
	paused bool
	pause  time.Duration // how long the last pause was
}

// suspend stops watching p for a while: 5 ms, and twice as long each time that this did not help, up to a second.
func (ps *pauses) suspend(p *portSocket) {
	ps.poller.unwatch(p.fd)
	p.paused = true
	p.pause = min(max(2*p.pause, engine.FirstPause), engine.LastPause)
	if at := ps.turn.now + p.pause; len(ps.paused) == 0 || at < ps.resumeAt {
		ps.resumeAt = at
	}
	ps.paused = append(ps.paused, p)
}

// due is when resume has something to do.
func (ps *pauses) due() time.Duration {
	switch {
	case len(ps.resuming) > 0:
		return ps.turn.now
	case len(ps.paused) > 0:
		return ps.resumeAt
	}
	return never
}

// resumesATurn is how many ports are watched again in a turn, at a system call each.
const resumesATurn = 256

// resume watches ports again whose pause is over.
func (ps *pauses) resume() {
	if len(ps.paused) > 0 && ps.turn.now >= ps.resumeAt {
		ps.resuming, ps.paused = append(ps.resuming, ps.paused...), nil
	}
	for range min(len(ps.resuming), resumesATurn) {
		p := ps.resuming[0]
		ps.resuming = ps.resuming[1:]
		if !p.paused {
			continue // it was closed
		}
		if p.paused = false; ps.poller.watch(p.fd, p.token, unix.EPOLLIN) != nil {
			ps.suspend(p) // a port that is not watched would accept nobody for ever
		}
	}
}
