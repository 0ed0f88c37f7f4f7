package epoll

import (
	"context"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/pipes"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/slab"
	"kubeproxy/proxy/removal"
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
	backlog  *backlog

	buffer [chunk]byte
	tails  slab.FreeList[tail]
	pipes  pipes.Pool

	share int // what each that carries in bulk may move in this turn
	bulky int // how many have carried in bulk, in this turn
	moved int // bytes, in this turn
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
	r.announce(c)
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
	for _, t := range []*removal.Lifetime{c.record.Claim.Lifetime, c.record.Endpoint.Lifetime()} {
		c.lifetimes = append(c.lifetimes, context.AfterFunc(t.Context(), func() {
			r.requests.Do(func() {
				if c := r.conns.At(index, generation); c != nil {
					r.end(c, removal.ReasonOf(t.Context()))
				}
			})
		}))
	}
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

// proceed goes on with connections of the backlog.
func (r *relays) proceed() {
	for c := range r.backlog.due {
		r.goOn(c)
	}
}

// goOn goes on in both directions.
func (r *relays) goOn(c *conn) {
	for _, way := range [...]struct{ dst, src *side }{{&c.backend, &c.client}, {&c.client, &c.backend}} {
		if c.live && (!way.dst.stalled() || r.flush(c, way.dst, way.src)) {
			r.pump(c, way.dst, way.src)
		}
	}
}
