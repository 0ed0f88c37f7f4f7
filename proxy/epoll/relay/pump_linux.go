package relay

import (
	"slices"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/tcp"
)

// pump carries what src has sent to dst until there is no more for now, dst stalls, the budget or the time of the turn is
// used up, or one of them ends. A slow dst so holds up src: the kernel's buffers and one of ours
// are all that is held for it.
func (r *Relays) pump(c *Conn, dst, src *side) {
	if src.ringing != byCalls {
		if src.ringing == toAsk && !c.end.HasFinished(src.which) && !dst.stalled() {
			r.ask(c, src, true)
		}
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
		var n int
		var more bool
		switch {
		case c.end.Refuses(dst.which):
			n, more = r.discard(c, dst, src)
		case src.full >= bulkAfter:
			n, more = r.splice(c, dst, src)
		default:
			n, more = r.copy(c, dst, src)
		}
		r.moved += n
		if !more || src.full == movesAfter && r.moves(c) {
			return
		}
		if budget -= n; src.readable && r.Turn.Late() {
			budget = 0
		}
	}
}

// copy reads once and writes once. It returns false when there is no more to do for now.
func (r *Relays) copy(c *Conn, dst, src *side) (n int, more bool) {
	n, errno := socket.Receive(int(src.fd), r.buffer[:])
	if n <= 0 || errno != 0 {
		r.unread(c, dst, src, errno)
		return 0, false
	}
	if n < len(r.buffer) {
		src.full = min(src.full, 0)
		if !src.hungUp && !src.urgent {
			src.readable = false // that was all there was; what comes now is told anew
		}
	} else if src.full < bulkAfter {
		src.full = max(src.full, 0) + 1
	}
	r.send(c, dst, src, r.buffer[:n])
	if r.Buffers != nil && c.live && !src.readable {
		r.joins(c, dst, src)
	}
	return n, c.live
}

// send writes to dst what src said, and holds what does not fit.
func (r *Relays) send(c *Conn, dst, src *side, b []byte) {
	n, errno := socket.Send(int(dst.fd), b)
	r.wrote(c, dst, src, b, max(0, n), errno)
}

// wrote counts the n bytes of b that were written to dst, and holds the rest.
func (r *Relays) wrote(c *Conn, dst, src *side, b []byte, n int, errno unix.Errno) {
	if n > 0 {
		r.count(c, dst, n)
	}
	switch {
	case errno == 0 && n == len(b):
		return
	case errno == 0 || errno == unix.EAGAIN:
		dst.held = r.tail(b[n:])
		r.wantOut(c, dst)
	case socket.LacksMemory(errno):
		dst.held = r.tail(b)
		r.Backlog.starve(c)
	default:
		r.unwritten(c, dst, src, errno)
	}
}

// count notes that n bytes were written to dst.
func (r *Relays) count(c *Conn, dst *side, n int) {
	if dst.header > 0 {
		ours := min(n, int(dst.header))
		dst.header -= uint16(ours)
		n -= ours
	}
	if dst == &c.backend {
		c.Account.Sent += uint64(n)
		c.Account.Claim.Tally.Sent.Add(uint64(n))
	} else {
		c.Account.Received += uint64(n)
		c.Account.Claim.Tally.Received.Add(uint64(n))
	}
}

// wantOut has the kernel tell when s can be written to again. Most connections never need it.
func (r *Relays) wantOut(c *Conn, s *side) {
	if s.wantsOut {
		return
	}
	s.wantsOut = true
	if s.ringing == byCalls {
		r.Poller.Change(int(s.fd), c.tokenOf(s), News|unix.EPOLLOUT)
	} else if err := r.Poller.Watch(int(s.fd), c.tokenOf(s), unix.EPOLLOUT|unix.EPOLLET); err != nil {
		s.wantsOut = false
		r.Backlog.starve(c) // it is tried again
	}
}

// flush writes what is held for dst, and reports whether src may go on.
func (r *Relays) flush(c *Conn, dst, src *side) bool {
	t := dst.held
	if t == nil {
		return c.live
	}
	if len(t.rest) > 0 {
		n, errno := socket.Send(int(dst.fd), t.rest)
		if n > 0 {
			r.count(c, dst, n)
			t.rest = t.rest[n:]
		}
		switch {
		case len(t.rest) == 0:
		case errno == 0 || errno == unix.EAGAIN:
			r.wantOut(c, dst)
			return false
		case socket.LacksMemory(errno):
			r.Backlog.starve(c)
			return false
		default:
			r.unwritten(c, dst, src, errno)
			return c.live
		}
	}
	p := t.pipe
	t.pipe, dst.held = nil, nil
	r.tails.GiveBack(t)
	if p != nil && !r.unpipe(c, dst, src, p) {
		return false
	}
	return c.live
}

// SendEarly sends the PROXY header, if the service wants one, and what the client of c has said already to an endpoint that is being
// connected to, and reports whether that went well: its connection stands by then. What the client said and a socket does not take yet is
// held for whichever endpoint answers. The header is not: that endpoint gets one of its own.
func (r *Relays) SendEarly(c *Conn, fd int) (answered bool, err error) {
	header := len(r.header(c))
	n, errno := socket.Receive(int(c.client.fd), r.buffer[header:])
	switch {
	case errno != 0 && errno != unix.EAGAIN && !socket.LacksMemory(errno): // of which the kernel tells only once
		c.end.Broke(tcp.ClientSide, errno)
		return false, nil
	case errno == 0 && n > 0:
		c.client.readable = header+n == len(r.buffer) // otherwise that was all there was
	case header == 0:
		return false, nil
	default:
		n = 0
	}
	whole := r.buffer[:header+n]
	sent, errno := socket.Send(fd, whole)
	if errno == 0 {
		c.headed, c.backend.header = true, uint16(header)
		r.count(c, &c.backend, sent)
		whole = whole[sent:]
	} else {
		whole = whole[header:]
	}
	if len(whole) > 0 {
		c.backend.held = r.tail(whole)
	}
	switch errno {
	case 0:
		return true, nil
	case unix.EAGAIN, unix.ENOMEM, unix.ENOBUFS: // it has not answered yet
		return false, nil
	}
	return false, errno
}

// header puts the PROXY header of c at the beginning of the buffer: nothing if its service wants none.
func (r *Relays) header(c *Conn) []byte {
	if !c.Account.WantsHeader() {
		return nil
	}
	return c.Account.AppendHeader(r.buffer[:0], socket.LocalName(int(c.client.fd)))
}

// announce has a backend get the PROXY header of c before all that is held for it, unless it was sent already.
func (r *Relays) announce(c *Conn) {
	if c.headed {
		return
	}
	c.headed = true
	header := r.header(c)
	if len(header) == 0 {
		return
	}
	t := r.tail(header)
	if said := c.backend.held; said != nil {
		t.rest = append(t.rest, said.rest...)
		r.tails.GiveBack(said)
	}
	c.backend.held, c.backend.header = t, uint16(len(header))
}

// tail holds a copy of b.
func (r *Relays) tail(b []byte) *tail {
	t := r.tails.Take()
	t.rest = append(t.room[:0], b...)
	return t
}

// In bulk, bytes need not pass through our memory: splice(2) moves the kernel's own pages from one
// socket into a pipe, and from there into the other. That saves two copies, and costs more system calls,
// so it is for directions that keep filling the buffer only.

// bulkAfter is how many reads in a row must fill the buffer.
const bulkAfter = 4

// splice moves a pipe's worth from src to dst. It returns false when there is no more to do for now. A pipe is lent for one
// such step, and no more is moved into it than dst has room for: however many connections have readers that
// do not read, none of them holds a pipe.
func (r *Relays) splice(c *Conn, dst, src *side) (n int, more bool) {
	room := socket.SendRoom(int(dst.fd))
	if room < leastBudget {
		return r.copy(c, dst, src) // it is about to stall, and then little is held
	}
	p := r.Pipes.Take()
	if p == nil {
		return r.copy(c, dst, src)
	}
	n, errno := socket.Splice(int(src.fd), p.W, min(p.Size, r.share, room))
	if n <= 0 || errno != 0 {
		r.Pipes.GiveBack(p)
		if errno == 0 { // a FIN, or urgent data, which splice stops at: a read says which
			return r.copy(c, dst, src)
		}
		r.unread(c, dst, src, errno)
		return 0, false
	}
	p.N = n
	r.bulky++
	if n < len(r.buffer) {
		src.full = 0 // that is no bulk any more
	} else {
		src.full = min(src.full+1, movesAfter)
	}
	return n, r.unpipe(c, dst, src, p)
}

// unpipe moves what is in pipe p on to dst, and reports whether all of it has gone. What has not is held. One splice makes a write for each 16
// pages, and reports the failure of any but the first as a short count: if that was a reset, nothing tells of it any more.
func (r *Relays) unpipe(c *Conn, dst, src *side, p *pipe) bool {
	for short := false; p.N > 0; {
		n, errno := socket.Splice(p.R, int(dst.fd), p.N)
		if n > 0 {
			p.N -= n
			short = true
			r.count(c, dst, n)
			continue
		}
		r.hold(dst, p)
		switch {
		case errno == unix.EAGAIN:
			r.wantOut(c, dst)
		case socket.LacksMemory(errno):
			r.Backlog.starve(c)
		default:
			if short && errno == unix.EPIPE {
				c.end.Doubt(dst.which)
			}
			r.unwritten(c, dst, src, errno)
		}
		return false
	}
	r.Pipes.GiveBack(p)
	return true
}

// hold holds for dst what is left in pipe p. It reads what little that is, so that the pipe is free. More is left only when the kernel
// took less than it had room for, because it lacks memory or tcp_notsent_lowat is set: then the pipe stays with dst.
func (r *Relays) hold(dst *side, p *pipe) {
	dst.held = r.tail(nil)
	dst.held.pipe = p
	if p.N <= chunk {
		_ = r.drain(dst.held) // if it fails, the pipe stays likewise
	}
}

// drain moves what is in the pipe of a tail into memory, and gives the pipe back.
func (r *Relays) drain(t *tail) error {
	p := t.pipe
	for t.rest = slices.Grow(t.rest, p.N); p.N > 0; {
		n, errno := socket.Read(p.R, t.rest[len(t.rest):len(t.rest)+p.N])
		if errno != 0 {
			return errno
		}
		t.rest = t.rest[:len(t.rest)+n]
		p.N -= n
	}
	r.Pipes.GiveBack(p)
	t.pipe = nil
	return nil
}
