package relay

import (
	"context"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/ring"
	"kubeproxy/proxy/removal"
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
	Pipes    Pipes         // that bulk passes through; for the loop to close
	Buffers  *ring.Buffers // of the loop's ring, see [NewBuffers]; nil: it has none. For the loop to close
	BulkTo   []*Relays     // where connections go that carry in bulk, see moving_linux.go; none: they stay. Those loops outlast this one

	buffer [chunk]byte
	tails  reactor.FreeList[tail]
	sends  [ringBuffers]sending // under way in the ring, by buffer

	unwatch map[int32][]func() bool // end the watch over lifetimes of a connection, by its index; nil where removal ends nothing

	share int // what each that carries in bulk may move in this turn
	bulky int // how many have carried in bulk, in this turn
	moved int // bytes, in this turn
}

// Apportion sets how much each may have of the turn that begins.
func (r *Relays) Apportion() {
	r.share, r.bulky = share(r.bulky), 0
	r.moved = 0
}

// Begin begins to carry bytes between the client of c and the backend that has answered. The kernel has told of
// that by mask; or, when that is 0, it does not tell of the backend yet.
func (r *Relays) Begin(c *Conn, fd int32, mask uint32) {
	r.watchLifetimes(c)
	c.backend.fd, c.backend.open, c.backend.wantsOut = fd, true, mask != 0
	r.Conns.Enter(c, Young)
	r.announce(c)
	rings := r.Buffers != nil && r.Poller.IsOpen()
	if mask == 0 && rings {
		c.backend.ringing = toAsk
	} else if mask == 0 {
		if err := r.Poller.Watch(int(fd), c.Token(BackendSide), News); err != nil {
			r.End(c, traffic.DescriptorLimit)
			return
		}
	}
	if !c.backend.stalled() || r.flush(c, &c.backend, &c.client) {
		r.pump(c, &c.backend, &c.client)
	}
	if !c.live {
		return
	}
	if rings {
		c.client.ringing = toAsk
		r.pump(c, &c.backend, &c.client)
		r.onEvent(c, &c.backend, &c.client, mask)
		if c.live {
			r.pump(c, &c.client, &c.backend)
		}
		return
	}
	// Only now is the kernel asked to tell of the client: what was read just now is no news any more.
	if err := r.Poller.Watch(int(c.client.fd), c.Token(ClientSide), News); err != nil {
		r.End(c, traffic.DescriptorLimit)
		return
	}
	r.onEvent(c, &c.backend, &c.client, mask)
}

// watchLifetimes has c ended when its endpoint or its service is removed, where that is what removal means.
func (r *Relays) watchLifetimes(c *Conn) {
	if !r.Engine.Cfg.RemovalOf(c.Account.Claim.Terms).Close {
		return
	}
	if r.unwatch == nil {
		r.unwatch = make(map[int32][]func() bool)
	}
	index, generation := c.index, c.generation
	for _, t := range []*removal.Lifetime{c.Account.Claim.Lifetime, c.Account.Endpoint.Lifetime()} {
		r.unwatch[index] = append(r.unwatch[index], context.AfterFunc(t.Context(), func() {
			r.Requests.Do(func() {
				if c := r.Conns.At(index, generation); c != nil {
					r.End(c, removal.ReasonOf(t.Context()))
				}
			})
		}))
	}
}

// forgetLifetimes has c not be ended by a removal any more.
func (r *Relays) forgetLifetimes(c *Conn) {
	for _, stop := range r.unwatch[c.index] {
		stop()
	}
	delete(r.unwatch, c.index)
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
		if r.flush(c, s, other) && (other.readable || other.ringing == toAsk) {
			r.pump(c, s, other)
		}
	}
	if c.live && s.readable && s.open {
		r.pump(c, other, s)
	}
}

// Proceed goes on with connections of the backlog.
func (r *Relays) Proceed() {
	for c := range r.Backlog.due {
		r.goOn(c)
	}
}

// goOn goes on in both directions.
func (r *Relays) goOn(c *Conn) {
	for _, way := range [...]struct{ dst, src *side }{{&c.backend, &c.client}, {&c.client, &c.backend}} {
		if c.live && (!way.dst.stalled() || r.flush(c, way.dst, way.src)) {
			r.pump(c, way.dst, way.src)
		}
	}
}
