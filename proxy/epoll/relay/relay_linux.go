package relay

import (
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/traffic"
)

// Relays carry the bytes of the connections that have a backend, in both directions, and end them. All bytes that pass through
// memory pass through one buffer; nothing stays in it.
type Relays struct {
	Engine   *engine.Base
	Turn     *reactor.Turn
	Poller   *reactor.Poller
	Requests *reactor.Requests
	Conns    *Conns
	Backlog  *Backlog
	Pipes    Pipes // that bulk passes through; for the loop to close

	ringed
	buffer [chunk]byte
	tails  reactor.FreeList[tail]

	unwatch map[int32][]func() bool // end the watch over lifetimes of a connection, by its index; nil where removal ends nothing

	share int // what each that carries in bulk may move in this turn
	bulky int // how many have carried in bulk, in this turn
	moved int // bytes, in this turn
}

// Begin begins to carry bytes between the client of c and the backend that has answered. The kernel has told of
// that by mask; or, when that is 0, it does not tell of the backend yet.
func (r *Relays) Begin(c *Conn, fd int32, mask uint32) {
	c.backend.fd, c.backend.open, c.backend.wantsOut = fd, true, mask != 0
	r.Conns.Enter(c, Young)
	r.prependHeader(c)
	r.watchLifetimes(c)
	if mask == 0 && !r.watch(c, &c.client, &c.backend) {
		return
	}
	r.carry(c, &c.backend, &c.client)
	// Only now is the kernel asked to tell of the client: what was read just now is no news any more.
	if !c.live || !r.watch(c, &c.backend, &c.client) {
		return
	}
	r.onEvent(c, &c.backend, &c.client, mask)
}

// watch has the ring of the loop, or else epoll, tell what src says to dst from now on. If it cannot, it ends c.
func (r *Relays) watch(c *Conn, dst, src *side) bool {
	if r.enters(c, dst, src) {
		return true
	}
	if err := r.Poller.Watch(int(src.fd), c.tokenOf(src), News); err != nil {
		r.End(c, traffic.DescriptorLimit)
		return false
	}
	return true
}

// OnEvent handles an event of a side of c: kind says which side.
func (r *Relays) OnEvent(c *Conn, kind reactor.Kind, mask uint32) {
	s, other := c.ends(kind)
	r.onEvent(c, s, other, mask)
}

// Postpone notes what the kernel tells of a side of c, and leaves the rest for a later turn.
func (r *Relays) Postpone(c *Conn, kind reactor.Kind, mask uint32) {
	s, _ := c.ends(kind)
	s.onEvent(mask)
	r.Backlog.interrupt(c)
}

// onEvent handles an event of side s of c.
func (r *Relays) onEvent(c *Conn, s, other *side, mask uint32) {
	s.onEvent(mask)
	if mask&unix.EPOLLOUT != 0 && s.stalled() {
		r.carry(c, s, other)
	}
	if c.live && s.readable && s.open {
		r.pump(c, other, s)
	}
}

// Proceed goes on with connections of the backlog, in both directions, or has them move to another loop.
func (r *Relays) Proceed() {
	for c := range r.Backlog.due {
		if c.leaving && r.leaves(c) {
			continue
		}
		r.carry(c, &c.backend, &c.client)
		r.carry(c, &c.client, &c.backend)
	}
}

// carry writes what is held for dst, and then what src has sent.
func (r *Relays) carry(c *Conn, dst, src *side) {
	if c.live && r.flush(c, dst, src) {
		r.pump(c, dst, src)
	}
}

// pump carries what src has sent to dst until there is no more for now, dst stalls, the budget or the time of the turn is
// used up, or one of them ends. A slow dst so holds up src: the kernel's buffers and one of ours
// are all that is held for it.
func (r *Relays) pump(c *Conn, dst, src *side) {
	if r.receives(c, dst, src) {
		return
	}
	budget := min(turnBudget, r.share)
	if r.moved > turnTotal {
		budget = leastBudget
	}
	for src.readable && !c.end.HasFinished(src.which) && !dst.stalled() {
		if budget <= 0 {
			r.Backlog.interrupt(c)
			return
		}
		thrownAway := c.end.Refuses(dst.which)
		if thrownAway && worksForNobody(c) {
			r.conclude(c)
			return
		}
		in, errno := r.read(dst, src, thrownAway)
		if in.n <= 0 {
			r.readFailed(c, dst, src, errno)
			return
		}
		r.moved += in.n
		if !thrownAway && !r.write(c, dst, src, in) || src.full == movesAfter && r.moves(c) {
			return
		}
		if budget -= in.n; src.readable && r.Turn.Late() {
			budget = 0
		}
	}
}
