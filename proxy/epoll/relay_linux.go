package epoll

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/pipes"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/slab"
	"kubeproxy/proxy/traffic"
)

// Relays carry the bytes of the connections that have a backend, in both directions, and end them. All bytes that pass through
// memory pass through one buffer; nothing stays in it.
type relays struct {
	engine   *engine.Base
	turn     *reactor.Turn
	poller   *reactor.Poller
	requests *reactor.Requests
	conns    *conns

	buffer [chunk]byte
	tails  slab.FreeList[tail]
	pipes  pipes.Pool

	share      int     // what each that carries in bulk may move in this turn
	bulky      int     // how many have carried in bulk, in this turn
	moved      int     // bytes, in this turn
	unfinished []*conn // interrupted in this turn, to go on in the next
	resumed    []*conn // empty; the room of those that went on in the last

	starved  []*conn       // the kernel had no memory for them
	resumeAt time.Duration // of those
}

// apportion sets how much each may have of the turn that begins.
func (r *relays) apportion() {
	r.share, r.bulky = share(r.bulky), 0
	r.moved = 0
}

// begin begins to carry bytes between the client of c and the backend that has answered. The kernel has told of
// that by mask; or, when that is 0, it does not tell of the backend yet.
func (r *relays) begin(c *conn, fd int32, mask uint32) {
	r.watchLifetimes(c)
	c.backend.fd, c.backend.open, c.backend.wantsOut = fd, true, mask != 0
	r.conns.enter(c, young)
	if mask == 0 {
		if err := r.poller.Watch(int(fd), c.token(backendSide), news); err != nil {
			r.end(c, traffic.DescriptorLimit)
			return
		}
	}
	if !c.backend.stalled() || r.flush(c, &c.backend, &c.client) {
		r.pump(c, &c.backend, &c.client)
	}
	if !c.live {
		return
	}
	// Only now is the kernel asked to tell of the client: what was read just now is no news any more.
	if err := r.poller.Watch(int(c.client.fd), c.token(clientSide), news); err != nil {
		r.end(c, traffic.DescriptorLimit)
		return
	}
	r.stirred(c, &c.backend, &c.client, mask)
}

// watchLifetimes has c ended when its endpoint or its service is removed, where that is what removal means.
func (r *relays) watchLifetimes(c *conn) {
	if !r.engine.Cfg.OnRemoval.Close {
		return
	}
	index, generation := c.index, c.generation
	for _, t := range []*balance.Lifetime{c.record.Claim.Lifetime, &c.record.Endpoint.Record().Lifetime} {
		c.lifetimes = append(c.lifetimes, context.AfterFunc(t.Context(), func() {
			r.requests.Do(func() {
				if c := r.conns.At(index, generation); c != nil {
					r.end(c, balance.ReasonOf(t.Context()))
				}
			})
		}))
	}
}

func forgetLifetimes(c *conn) {
	for _, stop := range c.lifetimes {
		stop()
	}
	c.lifetimes = nil
}

// stirred takes in what the kernel tells of side s of c.
func (r *relays) stirred(c *conn, s, other *side, mask uint32) {
	s.stir(mask)
	if mask&unix.EPOLLOUT != 0 && s.stalled() {
		if r.flush(c, s, other) && other.readable {
			r.pump(c, s, other)
		}
	}
	if c.live && s.readable && s.open {
		r.pump(c, other, s)
	}
}

// interrupt lets c go on in the next turn.
func (r *relays) interrupt(c *conn) {
	if !c.queued {
		c.queued = true
		r.unfinished = append(r.unfinished, c)
	}
}

// proceed goes on with connections that were interrupted, as many as the turn has time and room for; the others come first
// in the next.
func (r *relays) proceed() {
	if len(r.unfinished) == 0 {
		return
	}
	all := r.unfinished
	r.unfinished = r.resumed // for those that are interrupted once more
	n := 0
	for ; n < min(len(all), turnTotal/leastBudget) && (n < reactor.LeastATurn || !r.turn.Late()); n++ {
		c := all[n]
		c.queued = false
		if c.live && c.dial == nil {
			r.goOn(c)
		}
	}
	r.unfinished = slices.Insert(r.unfinished, 0, all[n:]...)
	clear(all)
	r.resumed = all[:0]
}

// goOn goes on in both directions.
func (r *relays) goOn(c *conn) {
	for _, way := range [...]struct{ dst, src *side }{{&c.backend, &c.client}, {&c.client, &c.backend}} {
		if c.live && (!way.dst.stalled() || r.flush(c, way.dst, way.src)) {
			r.pump(c, way.dst, way.src)
		}
	}
}

// starve leaves c alone for a while, because the kernel had no memory for it. No event tells when it has.
func (r *relays) starve(c *conn) {
	if !c.queued {
		c.queued = true
		if len(r.starved) == 0 {
			r.resumeAt = r.turn.Now + starvedPause
		}
		r.starved = append(r.starved, c)
	}
}

const starvedPause = 20 * time.Millisecond

// due is when resume has something to do.
func (r *relays) due() time.Duration {
	if len(r.starved) > 0 {
		return r.resumeAt
	}
	return monotonic.Never
}

// resume has connections go on in the next turn for which there was no memory.
func (r *relays) resume() {
	if r.due() <= r.turn.Now {
		r.unfinished = append(r.unfinished, r.starved...)
		clear(r.starved)
		r.starved = r.starved[:0]
	}
}
