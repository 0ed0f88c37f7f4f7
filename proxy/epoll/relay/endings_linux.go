package relay

import (
	"context"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
)

// How a connection ends is what [tcp.Teardown] says. This file tells it what system calls find, and does what it answers.

// Look looks at c, whose timer has ended, and sets its timer anew unless that has ended c.
func (r *Relays) Look(c *Conn) {
	p := c.phase
	if p == Young {
		socket.KeepAlive(int(c.backend.fd), r.Engine.Cfg.TCPKeepAlive)
		r.Conns.Enter(c, settled)
		r.lookAt(c)
		return
	}
	r.Conns.lookAgain(c)
	if p == flushing && hasFlushed(c) {
		r.conclude(c)
		return
	}
	r.lookAt(c)
}

// lookAt ends a connection of which one side has vanished, or both have been silent for too long.
func (r *Relays) lookAt(c *Conn) {
	if worksForNobody(c) {
		r.conclude(c)
		return
	}
	delivered, cfg := c.Account.Sent+c.Account.Received, &r.Engine.Cfg
	for _, way := range [...]struct{ s, other *side }{{&c.client, &c.backend}, {&c.backend, &c.client}} {
		d := sockopt.InspectTCP(int(way.s.fd))
		if !c.end.HasFinished(way.s.which) && tcp.HasVanished(d, cfg.TCPKeepAlive) && r.vanished(c, way.other, way.s) {
			return
		}
		if d.Dead && !c.end.HasFinished(way.s.which) {
			r.died(c, way.s)
		}
		delivered += d.Acked
	}
	if r.hasBeenSilent(c, delivered) {
		r.conclude(c)
	}
}

// vanished handles src that no longer answers, and reports whether that is its end. It is not while something that src has said is still to be read:
// that goes to dst as dst reads, which the silence of c limits. A later look finds the end.
func (r *Relays) vanished(c *Conn, dst, src *side) bool {
	if c.end.Refuses(dst.which) || !socket.HasUnread(int(src.fd)) {
		r.ended(c, dst, src, tcp.ErrVanished)
		return true
	}
	if !c.end.Refuses(src.which) {
		r.writeFailed(c, src, dst, unix.ETIMEDOUT)
	}
	return false
}

// died handles src that is dead while its end is not read yet: see [tcp.Teardown.Died].
func (r *Relays) died(c *Conn, src *side) {
	if src.which == tcp.BackendSide {
		c.Account.EndpointEnded()
	}
	c.end.Died()
	r.await(c, finishing)
}

// hasBeenSilent reports whether c has been silent for too long, of which so much has been delivered.
func (r *Relays) hasBeenSilent(c *Conn, delivered uint64) bool {
	if c.phase != settled {
		return c.end.IsSilent(r.Turn.Now, delivered, r.Engine.Cfg.HalfClosedTimeout)
	}
	idle := r.Engine.Cfg.IdleTimeoutOf(c.Account.Claim.Terms)
	return idle > 0 && c.end.IsIdle(r.Turn.Now, delivered, idle)
}

// readEnd handles an end of src that a read has found: a FIN, or what errno says.
func (r *Relays) readEnd(c *Conn, dst, src *side, errno unix.Errno) {
	switch {
	case endWaits(c, src, errno):
	case errno == 0:
		if c.end.IsDoubtful(src.which) && !hasSentFIN(c, src) {
			c.end.Broke(src.which, unix.ECONNRESET)
		}
		r.ended(c, dst, src, nil)
	default:
		r.ended(c, dst, src, errno)
	}
}

// hasSentFIN reports whether the kernel has received more from src, all of which was read and written to the other side, than that: a FIN.
func hasSentFIN(c *Conn, src *side) bool {
	said, known := c.Account.Received, true
	if src == &c.client {
		said, known = c.Account.FromClient()
	}
	return known && sockopt.InspectTCP(int(src.fd)).Received > said
}

// ended does what is to be done when src has ended: by FIN, or by err. All that it said has been written to dst, or is held for it, unless dst
// takes no more.
func (r *Relays) ended(c *Conn, dst, src *side, err error) {
	if src.which == tcp.BackendSide {
		c.Account.EndpointEnded()
	}
	switch c.end.Ended(src.which, err) {
	case tcp.Finish:
		socket.FinishSending(int(dst.fd))
		r.await(c, finishing)
	case tcp.Wait:
		r.await(c, finishing)
	case tcp.Flush:
		if hasFlushed(c) {
			r.conclude(c)
		} else {
			r.await(c, flushing)
		}
	case tcp.End:
		r.conclude(c)
	}
}

// writeFailed handles a write to dst that has failed: dst takes no more.
func (r *Relays) writeFailed(c *Conn, dst, src *side, errno unix.Errno) {
	r.drop(dst)
	c.end.Unwritable(dst.which, errno)
	dst.readable, src.readable = true, true // the latter to be thrown away
	r.await(c, finishing)
	r.Backlog.interrupt(c)
}

// worksForNobody reports whether the backend of c has the whole request of a client that is gone.
func worksForNobody(c *Conn) bool {
	return c.end.WorksForNobody() && !socket.Unacknowledged(int(c.backend.fd))
}

// hasFlushed reports whether the side of c that survives has got all that the other said, or takes no more.
func hasFlushed(c *Conn) bool {
	dst := &c.client
	if c.end.Survivor() == tcp.BackendSide {
		dst = &c.backend
	}
	return c.end.Refuses(dst.which) || !dst.stalled() && !socket.Unacknowledged(int(dst.fd))
}

// await lets c end when it has flushed, or nothing is delivered for too long.
func (r *Relays) await(c *Conn, p Phase) {
	if c.phase != flushing && c.phase != p {
		r.Conns.Enter(c, p)
	}
}

// conclude ends c in an orderly way.
func (r *Relays) conclude(c *Conn) {
	for _, s := range [...]*side{&c.client, &c.backend} {
		r.closeSide(c, s, c.end.IsClean(s.which))
	}
	r.release(c)
}

// Cut resets both sides, as far as they are open.
func (r *Relays) Cut(c *Conn) {
	r.closeSide(c, &c.client, false)
	r.closeSide(c, &c.backend, false)
}

// closeSide closes a side, if it is open, or resets it. Where another process or the ring has the socket too, closing alone would tell the
// peer nothing.
func (r *Relays) closeSide(c *Conn, s *side, clean bool) {
	if !s.open {
		return
	}
	switch {
	case clean && s.shared:
		socket.Shutdown(int(s.fd))
	case s.shared:
		socket.Disconnect(int(s.fd))
	case !clean:
		socket.ResetOnClose(int(s.fd))
	}
	r.drop(s)
	r.closeSocket(c, s)
	s.open = false
}

// End ends c before its time.
func (r *Relays) End(c *Conn, why traffic.Reason) {
	c.end.Because(why)
	r.Cut(c)
	r.release(c)
}

// drop throws away what is held for a side.
func (r *Relays) drop(s *side) {
	if t := s.held; t != nil {
		if t.pipe != nil {
			r.Pipes.GiveBack(t.pipe)
			t.pipe = nil
		}
		r.tails.GiveBack(t)
		s.held = nil
	}
	s.header = 0
}

// release closes the account of c and frees it.
func (r *Relays) release(c *Conn) {
	c.Account.End(c.end.Reason())
	r.Free(c)
}

// Free gives back what c has, whose sides are closed and whose account is closed.
func (r *Relays) Free(c *Conn) {
	r.forgetLifetimes(c)
	r.drop(&c.backend) // what the client said early, when no endpoint was found for it
	r.Conns.free(c)
}

// watchLifetimes has c ended when its endpoint or its service is removed, or checks of the endpoint fail, where that ends connections.
func (r *Relays) watchLifetimes(c *Conn) {
	index, generation := c.index, c.generation
	for _, t := range c.Account.Lifetimes() {
		if r.unwatch == nil {
			r.unwatch = make(map[int32][]func() bool)
		}
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
