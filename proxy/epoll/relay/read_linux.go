package relay

import (
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/epoll/socket"
)

// A reading is what one read has taken from a side: n bytes in the loop's buffer, or in a pipe.
type reading struct {
	n    int
	pipe *pipe // nil: they are in the buffer
}

// read takes once what src has sent to dst. Without bytes, src has nothing for now, or has ended, as errno says. What is thrown away passes
// through the buffer alone, and says nothing of whether src sends in bulk.
func (r *Relays) read(dst, src *side, thrownAway bool) (in reading, errno unix.Errno) {
	if src.full >= bulkAfter && !thrownAway {
		in, errno = r.readBulk(dst, src)
		if stopsAtUrgent := errno == unix.EAGAIN && src.urgent; in.n > 0 || errno != 0 && !stopsAtUrgent {
			return in, errno
		}
	}
	n, errno := socket.Receive(int(src.fd), r.buffer[:])
	switch {
	case n <= 0 || errno != 0:
		return reading{}, errno
	case thrownAway:
	case n < len(r.buffer):
		src.full = min(src.full, 0)
		if !src.hungUp && !src.urgent {
			src.readable = false // that was all there was; what comes now is told anew
		}
	case src.full < bulkAfter:
		src.full = max(src.full, 0) + 1
	}
	return reading{n: n}, 0
}

// readFailed handles a read from src that has taken nothing: for now, for lack of memory, or because src has ended.
func (r *Relays) readFailed(c *Conn, dst, src *side, errno unix.Errno) {
	switch {
	case errno == unix.EAGAIN:
		src.full = min(src.full, 0)
		src.readable, src.urgent = false, false
	case socket.LacksMemory(errno): // it stays readable
		r.Backlog.starve(c)
	default:
		r.readEnd(c, dst, src, errno)
	}
}

// In bulk, bytes need not pass through our memory: splice(2) moves the kernel's own pages from one
// socket into a pipe, and from there into the other. That saves two copies, and costs more system calls,
// so it is for directions that keep filling the buffer only.

// bulkAfter is how many reads in a row must fill the buffer.
const bulkAfter = 4

// readBulk takes a pipe's worth from src. It takes nothing, without an error, where a plain read has to: dst is about to stall, and then
// little is held; or no pipe is to be had; or the kernel stops at a FIN. At urgent data the error is EAGAIN, though there is more to be read.
//
// A pipe is lent for one step, and no more is moved into it than dst has room for: however many connections have readers that
// do not read, none of them holds a pipe.
func (r *Relays) readBulk(dst, src *side) (in reading, errno unix.Errno) {
	room := socket.SendRoom(int(dst.fd))
	if room < leastBudget {
		return reading{}, 0
	}
	p := r.Pipes.Take()
	if p == nil {
		return reading{}, 0
	}
	n, errno := socket.Splice(int(src.fd), p.W, min(p.Size, r.share, room))
	if n <= 0 || errno != 0 {
		r.Pipes.GiveBack(p)
		return reading{}, errno
	}
	p.N = n
	r.bulky++
	if n < len(r.buffer) {
		src.full = 0 // that is no bulk any more
	} else {
		src.full = min(src.full+1, movesAfter)
	}
	return reading{n, p}, 0
}
