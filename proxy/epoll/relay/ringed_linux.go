package relay

import (
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/ring"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/traffic"
)

// How connections that say little pass through a ring.
//
// A receive waits in the kernel for what a side says next, and what comes is sent on by the ring too. One system call at the end of the turn
// so carries the messages of all connections. A connection begins in the ring. A side leaves it when it sends in bulk, finishes, or fails:
// then system calls carry what it says, and epoll tells of it, as read_linux.go and write_linux.go do. It comes back when it says little again.
//
//	          small messages, joinAfter in a row
//	byCalls ─────────────────────────────────────▶ asked ◀──┐
//	   ▲                                             │      │ the other side has room
//	   │  bulk, FIN, error                  received │      │
//	   └─────────────────────────────────────────────┴──▶ toAsk
//
// At most one receive is under way for a side, and at most one send. So bytes stay in order, and a side that stalls holds up the other: what
// was received meanwhile, one buffer, is held with the rest.

// The rest of the package speaks to the ring by enters, receives, joins, endWaits and closeSocket alone, and by moves (moving_linux.go).
// Without a ring they do nothing, or what epoll needs. A reader who asks about a loop without one can skip this file.

// ringed is what relays have of the ring of their loop.
type ringed struct {
	Buffers *ring.Buffers // of the loop's ring, see [NewBuffers]; nil: it has none. For the loop to close
	BulkTo  []*Relays     // where connections go that carry in bulk, see moving_linux.go; none: they stay. Those loops outlast this one

	sends [ringBuffers]sending // under way, by buffer
}

// joinAfter is how many reads in a row must have found little before a side comes back.
const joinAfter = 4

// ringBuffers is how many buffers there are for small messages. A receive that finds none has to be asked for again, so there are as many as
// messages that may come before the loop looks.
const ringBuffers = 1024

// NewBuffers makes the buffers of a ring that small messages of connections pass through.
func NewBuffers(r *ring.Ring) (*ring.Buffers, error) {
	return r.NewBuffers(ringBuffers, chunk)
}

// A sending is a message on its way to a side.
type sending struct {
	to   reactor.Token
	said int // bytes
}

// enters has the ring receive what src says to dst from now on, and reports whether there is one.
func (r *Relays) enters(c *Conn, dst, src *side) bool {
	if r.Buffers == nil || !r.Poller.IsOpen() {
		return false
	}
	src.ringing = toAsk
	return r.receives(c, dst, src)
}

// receives reports whether the ring receives what src says to dst, and asks it to once dst has room.
func (r *Relays) receives(c *Conn, dst, src *side) bool {
	if src.ringing == byCalls {
		return false
	}
	if src.ringing == toAsk && !c.end.HasFinished(src.which) && !dst.stalled() {
		r.ask(c, src, true)
	}
	return true
}

// joins counts a read of src that has found little, and has it join the ring after enough of them.
func (r *Relays) joins(c *Conn, dst, src *side) {
	if r.Buffers == nil {
		return
	}
	if src.full--; src.full > -joinAfter || src.stalled() {
		src.full = max(src.full, -joinAfter)
		return
	}
	r.Poller.Unwatch(int(src.fd))
	src.wantsOut, src.full, src.ringing = false, 0, toAsk
	if !dst.stalled() {
		r.ask(c, src, true)
	}
}

// endWaits reports whether an end of src, by errno or by a FIN, waits for what the ring sends to src: the kernel tells of a reset once, and if
// it tells the send, a read finds a FIN where there was none. onSent reads once more.
func endWaits(c *Conn, src *side, errno unix.Errno) bool {
	if !src.sending {
		return false
	}
	src.readable, src.hungUp = true, true
	if errno != 0 {
		c.end.Broke(src.which, errno)
	}
	return true
}

// closeSocket closes the socket of s: behind what was asked of the ring, if there is one. While the loop rests nothing is under way, and another
// thread acts for it, which may ask nothing of the ring.
func (r *Relays) closeSocket(c *Conn, s *side) {
	if r.Buffers != nil && !r.Requests.AtRest {
		r.Poller.CloseLater(int(s.fd), s.ringing == asked, c.tokenOf(s))
	} else {
		socket.Close(int(s.fd))
	}
}

// ask has the ring receive what src says next.
func (r *Relays) ask(c *Conn, src *side, late bool) {
	if src.ringing = toAsk; r.Poller.IsOpen() && !c.leaving {
		src.ringing = asked
		r.Poller.Receive(int(src.fd), r.Buffers, late, c.tokenOf(src))
	}
}

// CancelReceives cancels what is under way for the connections in a few places, and returns the next place; negative: there is none.
func (r *Relays) CancelReceives(from int) (next int) {
	conns, next := r.Conns.Some(from, reactor.PlacesAStep)
	for c := range conns {
		r.cancelReceives(c)
	}
	return next
}

func (r *Relays) cancelReceives(c *Conn) {
	for _, s := range [...]*side{&c.client, &c.backend} {
		if s.ringing == asked {
			r.Poller.CancelReceive(c.tokenOf(s))
		}
	}
}

// leave has system calls carry what s says.
func (r *Relays) leave(c *Conn, s *side) {
	s.ringing = byCalls
	if s.wantsOut {
		r.Poller.Change(int(s.fd), c.tokenOf(s), News|unix.EPOLLOUT)
	} else if err := r.Poller.Watch(int(s.fd), c.tokenOf(s), News); err != nil {
		r.End(c, traffic.DescriptorLimit)
	}
}

// Completed handles a completion of the ring.
func (r *Relays) Completed(t reactor.Token, done *ring.Completion) {
	if t.Kind == sent {
		id := uint16(t.Index)
		t = r.sends[id].to
		r.onSent(id, done)
	} else {
		r.onReceived(t, done)
	}
	if c := r.Conns.At(t.Index, t.Generation); c != nil && c.leaving {
		r.leaves(c)
	}
}

// onReceived handles the completion of a receive.
func (r *Relays) onReceived(t reactor.Token, done *ring.Completion) {
	id, said, has := r.Buffers.Take(done)
	isSent := false
	if c := r.Conns.At(t.Index, t.Generation); c != nil {
		src, dst := c.ends(t.Kind)
		isSent = r.forward(c, dst, src, id, said, done.Errno())
	}
	if has && !isSent {
		r.Buffers.GiveBack(id)
	}
}

// forward carries on what src said, and reports whether it is on its way to dst in the buffer that it came in.
func (r *Relays) forward(c *Conn, dst, src *side, id uint16, said []byte, errno unix.Errno) (isSent bool) {
	src.ringing = toAsk
	switch {
	case c.end.HasFinished(src.which):
		r.leave(c, src)
	case errno == unix.ECANCELED: // the loop is to rest
	case errno == unix.ENOBUFS: // those that are lent come back with what is being sent
		if !dst.stalled() {
			r.ask(c, src, true)
		}
	case len(said) > 0 && c.end.Refuses(dst.which), errno == unix.EINTR, errno == unix.EAGAIN, socket.LacksMemory(errno):
		src.readable = true // system calls see to it
		r.Backlog.interrupt(c)
		r.leave(c, src)
	case len(said) == 0 && dst.stalled(): // its end comes behind what is held for dst: it is read once more
		if errno != 0 {
			c.end.Broke(src.which, errno)
		}
		src.readable = true
		r.leave(c, src)
	case len(said) == 0:
		if r.readEnd(c, dst, src, errno); c.live {
			r.leave(c, src)
		}
	case dst.held != nil:
		dst.held.rest = append(dst.held.rest, said...)
	case len(said) == chunk && src.full+1 >= bulkAfter:
		src.full++
		src.readable = true
		if r.leave(c, src); c.live {
			r.send(c, dst, src, said)
			r.Backlog.interrupt(c)
		}
	default:
		if src.full++; len(said) < chunk {
			src.full = 0
		}
		dst.sending = true
		r.sends[id] = sending{c.tokenOf(dst), len(said)}
		r.Poller.Send(int(dst.fd), said, reactor.Token{Kind: sent, Index: int32(id)})
		r.ask(c, src, len(said) < chunk)
		return true
	}
	return false
}

// onSent handles the completion of a send.
func (r *Relays) onSent(id uint16, done *ring.Completion) {
	s := r.sends[id]
	if c := r.Conns.At(s.to.Index, s.to.Generation); c != nil {
		dst, src := c.ends(s.to.Kind)
		r.hasSent(c, dst, src, r.Buffers.At(id, s.said), max(0, int(done.Result)), done.Errno())
	}
	r.Buffers.GiveBack(id)
}

// hasSent handles what came of the send of b to dst. An end of dst that has waited for that is read at once, as no other send is under way now.
// What src has said meanwhile may go on: it is read by calls, or received once more if a receive found no buffer, whose completion Linux 6.1 may tell
// before that of the send. What dst did not take is tried once more by a call: epoll tells only once that dst has room, and has done so by now if dst got
// it while the completion waited behind others.
func (r *Relays) hasSent(c *Conn, dst, src *side, b []byte, n int, errno unix.Errno) {
	dst.sending = false
	r.wrote(c, dst, src, b, n, errno)
	if dst.hungUp && dst.readable && dst.ringing == byCalls {
		r.pump(c, src, dst)
	}
	if c.live && (dst.held != nil || src.ringing == toAsk || src.readable && src.ringing == byCalls) {
		r.Backlog.interrupt(c)
	}
}

// Refill has receives begin again after a rest.
func (r *Relays) Refill() {
	for c := range r.Conns.All {
		if c.client.ringing == toAsk || c.backend.ringing == toAsk {
			r.Backlog.interrupt(c)
		}
	}
}
