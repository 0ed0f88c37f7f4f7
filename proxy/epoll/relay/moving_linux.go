package relay

import (
	"slices"
	"sync/atomic"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
)

// How connections that carry in bulk move to a loop that carries nothing else.
//
// Bulk takes a loop so much processor time that small messages beside it wait for milliseconds, mostly for a processor: a thread that has
// had its part of them waits until others have had theirs. So loops with a ring keep to small messages, and beside them stand
// some without. A connection that goes on to carry in bulk moves there once, in four steps, as in a take-over:
//
//	loop with a ring                                          loop for bulk
//	1. the receive that is under way for the other side
//	   is cancelled, and nothing more is asked of the ring
//	2. what was under way has completed; epoll is told to
//	   forget both sockets
//	3. what the loop knows of it, and holds for a side ──────▶ 4. epoll watches both sockets, and tells of all
//	   that has stalled, is posted, and forgotten here            there is to read once more
//
// It does not come back: to receive by calls is nearly as good for those that say little.

// movesAfter is how many times in a row a side must have had enough for a pipe. What is shorter than a few megabytes is over before.
const movesAfter = 16

// A departure is a connection on its way to another loop.
type departure struct {
	client, backend int32
	shared          [2]bool // see side
	owner           *atomic.Pointer[engine.Claim]
	account         tcp.Connection
	progress        handover.Progress
}

// moves has c move to a loop for bulk in the next turn, if there is one, and reports whether it will. Until it can, it goes on here.
func (r *Relays) moves(c *Conn) bool {
	if len(r.BulkTo) == 0 || c.leaving {
		return false
	}
	c.leaving = true
	r.cancelReceives(c)
	r.Backlog.interrupt(c)
	return true
}

// leaves has c, which is to move, leave this loop unless something is under way for it in the ring, and reports whether it has left.
func (r *Relays) leaves(c *Conn) bool {
	for _, s := range [...]*side{&c.client, &c.backend} {
		if s.ringing == asked || s.sending {
			return false
		}
	}
	progress, err := r.Progress(c)
	if err != nil || len(r.BulkTo) == 0 { // it stays: for now, or because this loop ends what it carries
		c.leaving = false
		r.Backlog.interrupt(c)
		return false
	}
	d := departure{client: c.client.fd, backend: c.backend.fd, shared: [...]bool{c.client.shared, c.backend.shared},
		owner: c.Owner, account: c.Account, progress: progress}
	d.progress.ToBackend, d.progress.ToClient = slices.Clone(progress.ToBackend), slices.Clone(progress.ToClient)
	to := slices.MinFunc(r.BulkTo, func(a, b *Relays) int { return int(a.Conns.Assigned.Load() - b.Conns.Assigned.Load()) })
	r.Poller.Unwatch(int(c.client.fd))
	r.Poller.Unwatch(int(c.backend.fd))
	r.forgetLifetimes(c)
	r.drop(&c.client)
	r.drop(&c.backend)
	r.Conns.remove(c)
	to.Conns.Assigned.Add(1)
	to.Requests.Do(func() { to.receiveConn(&d) }) // it does not end before this loop has
	return true
}

// receiveConn carries on with a connection of another loop.
func (r *Relays) receiveConn(d *departure) {
	c := r.Conns.Begin(int(d.client), d.owner, d.account)
	c.client.shared, c.backend.shared = d.shared[0], d.shared[1]
	if err := r.enroll(c, int(d.backend), &d.progress); err != nil {
		r.End(c, traffic.DescriptorLimit)
		return
	}
	r.watchLifetimes(c)
}
