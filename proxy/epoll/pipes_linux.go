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
