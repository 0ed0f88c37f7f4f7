package relay

import (
	"slices"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/epoll/socket"
)

// write writes to dst what was read from src, holds what does not fit, and reports whether the direction may go on.
func (r *Relays) write(c *Conn, dst, src *side, in reading) bool {
	if in.pipe != nil {
		return r.writeBulk(c, dst, src, in.pipe)
	}
	r.send(c, dst, src, r.buffer[:in.n])
	if c.live && !src.readable {
		r.joins(c, dst, src)
	}
	return c.live
}

// send writes b to dst, and holds what does not fit.
func (r *Relays) send(c *Conn, dst, src *side, b []byte) {
	n, errno := socket.Send(int(dst.fd), b)
	r.wrote(c, dst, src, b, max(0, n), errno)
}

// wrote counts the n bytes of b that were written to dst, and holds the rest.
func (r *Relays) wrote(c *Conn, dst, src *side, b []byte, n int, errno unix.Errno) {
	if n > 0 {
		r.count(c, dst, n)
	}
	if errno != 0 || n < len(b) {
		dst.held = r.tail(b[n:])
		r.stalls(c, dst, src, errno)
	}
}

// writeBulk moves what is in pipe p on to dst, and reports whether all of it has gone. What has not is held. One splice makes a write for each 16
// pages, and reports the failure of any but the first as a short count: if that was a reset, nothing tells of it any more.
func (r *Relays) writeBulk(c *Conn, dst, src *side, p *pipe) bool {
	for short := false; p.N > 0; {
		n, errno := socket.Splice(p.R, int(dst.fd), p.N)
		if n > 0 {
			p.N -= n
			short = true
			r.count(c, dst, n)
			continue
		}
		if short && errno == unix.EPIPE {
			c.end.Doubt(dst.which)
		}
		r.hold(dst, p)
		r.stalls(c, dst, src, errno)
		return false
	}
	r.Pipes.GiveBack(p)
	return true
}

// flush writes what is held for dst, and reports whether src may go on.
func (r *Relays) flush(c *Conn, dst, src *side) bool {
	t := dst.held
	if t == nil {
		return true
	}
	if len(t.rest) > 0 {
		n, errno := socket.Send(int(dst.fd), t.rest)
		if n > 0 {
			r.count(c, dst, n)
			t.rest = t.rest[n:]
		}
		if len(t.rest) > 0 {
			r.stalls(c, dst, src, errno)
			return c.live && dst.held == nil // it takes no more: what src sends is thrown away
		}
	}
	p := t.pipe
	t.pipe, dst.held = nil, nil
	r.tails.GiveBack(t)
	return p == nil || r.writeBulk(c, dst, src, p)
}

// stalls handles a write to dst that has left something, which is held: because the socket is full, because the kernel lacks memory, or
// because dst takes no more.
func (r *Relays) stalls(c *Conn, dst, src *side, errno unix.Errno) {
	switch {
	case errno == 0 || errno == unix.EAGAIN:
		r.wantOut(c, dst)
	case socket.LacksMemory(errno):
		r.Backlog.starve(c)
	default:
		r.writeFailed(c, dst, src, errno)
	}
}

// wantOut has the kernel tell when s can be written to again. Most connections never need it.
func (r *Relays) wantOut(c *Conn, s *side) {
	if s.wantsOut {
		return
	}
	s.wantsOut = true
	if token := c.tokenOf(s); s.ringing == byCalls {
		r.Poller.Change(int(s.fd), token, News|unix.EPOLLOUT)
	} else if err := r.Poller.Watch(int(s.fd), token, unix.EPOLLOUT|unix.EPOLLET); err != nil {
		s.wantsOut = false
		r.Backlog.starve(c) // it is tried again
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

// tail holds a copy of b.
func (r *Relays) tail(b []byte) *tail {
	t := r.tails.Take()
	t.rest = append(t.room[:0], b...)
	return t
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
