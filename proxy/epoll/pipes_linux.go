package epoll

import (
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
)

// In bulk, bytes need not pass through our memory: splice(2) moves the kernel's own pages from one
// socket into a pipe, and from there into the other. That saves two copies, and costs more system calls,
// so it is for directions that keep filling the buffer only.

// bulkAfter is how many reads in a row must fill the buffer.
const bulkAfter = 4

// pipeSize is how much a pipe is to hold. An unprivileged process may have 64 MiB in all of its user's
// pipes (pipe-user-pages-soft, pipe(7)); past that it gets pipes too small to be worth it.
const (
	pipeSize  = 1 << 20
	leastPipe = 128 << 10
	maxPipes  = 32 // for each loop
)

// A pipe holds bytes on their way to one side.
type pipe struct {
	r, w int
	n    int // bytes in it
	size int
}

// pipes are a loop's pipes that nobody uses just now.
type pipes struct {
	budget *admit.Budget
	free   []*pipe
	made   int  // in use and not
	scant  bool // the kernel gives no pipes that are worth it
}

// take returns an empty pipe, or nil when none is to be had: then bytes have to pass through our memory.
func (ps *pipes) take() *pipe {
	if n := len(ps.free); n > 0 {
		p := ps.free[n-1]
		ps.free = ps.free[:n-1]
		return p
	}
	if ps.scant || ps.made == maxPipes || !ps.budget.Take(2) {
		return nil
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		ps.budget.Release(2)
		return nil
	}
	p := &pipe{r: fds[0], w: fds[1]}
	ps.made++
	for want := pipeSize; want >= leastPipe && p.size == 0; want /= 2 {
		p.size, _ = unix.FcntlInt(uintptr(p.w), unix.F_SETPIPE_SZ, want) // fails when that is more than we may have
	}
	if p.size < leastPipe {
		ps.scant = true
		ps.discard(p)
		return nil
	}
	return p
}

// giveBack takes a pipe that is no longer needed. What is still in it belongs to nobody.
func (ps *pipes) giveBack(p *pipe) {
	if p.n > 0 {
		ps.discard(p)
	} else {
		ps.free = append(ps.free, p)
	}
}

func (ps *pipes) discard(p *pipe) {
	closeFD(p.r)
	closeFD(p.w)
	ps.made--
	ps.budget.Release(2)
}

func (ps *pipes) close() {
	for _, p := range ps.free {
		ps.discard(p)
	}
	ps.free = nil
}

// splice moves a pipe's worth from src to dst. It returns false when there is no more to do for now. A pipe is lent for one
// such step, and no more is moved into it than dst has room for: however many connections have readers that
// do not read, none of them holds a pipe.
func (l *loop) splice(c *conn, dst, src *side) (n int, more bool) {
	room := sendRoom(int(dst.fd))
	if room < leastBudget {
		return l.copy(c, dst, src) // it is about to stall, and then little is held
	}
	p := l.pipes.take()
	if p == nil {
		return l.copy(c, dst, src)
	}
	n, errno := splice(int(src.fd), p.w, min(p.size, l.share, room))
	if n <= 0 || errno != 0 {
		l.pipes.giveBack(p)
		if errno == 0 { // a FIN, or urgent data, which splice stops at: a read says which
			return l.copy(c, dst, src)
		}
		l.unread(c, dst, src, errno)
		return 0, false
	}
	dst.bulk, p.n = p, n
	l.bulky++
	if n < len(l.buffer) {
		src.full = 0 // that is no bulk any more
	}
	return n, l.unpipe(c, dst, src)
}

// unpipe moves what is in the pipe on to dst, and reports whether all of it has gone.
func (l *loop) unpipe(c *conn, dst, src *side) bool {
	for p := dst.bulk; p.n > 0; {
		n, errno := splice(p.r, int(dst.fd), p.n)
		switch {
		case n > 0:
			p.n -= n
			l.count(c, dst, n)
			continue
		case errno == unix.EAGAIN:
			l.empty(dst)
			l.wantOut(c, dst)
		case lacksMemory(errno):
			l.starve(c)
		default:
			l.unwritten(c, dst, src, errno)
		}
		return false
	}
	l.pipes.giveBack(dst.bulk)
	dst.bulk = nil
	return true
}

// empty reads what little is left in the pipe of a side that has stalled, so that the pipe is free. More is left only when
// the kernel took less than it had room for, because it lacks memory or tcp_notsent_lowat is set: then the pipe stays with it.
func (l *loop) empty(dst *side) {
	p := dst.bulk
	if p.n > chunk {
		return
	}
	t := l.tails.take()
	n, errno := read(p.r, t.data[:p.n])
	if errno != 0 {
		l.tails.giveBack(t)
		return
	}
	t.from, t.to = 0, n
	dst.held = t
	if p.n -= n; p.n == 0 {
		l.pipes.giveBack(p)
		dst.bulk = nil
	}
}
