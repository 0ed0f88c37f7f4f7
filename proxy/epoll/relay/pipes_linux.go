package relay

import (
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/epoll/socket"
)

// maxPipe is how much a pipe is to hold; mostPipes is how many there may be in a pool. An unprivileged process may have 64 MiB in all of its user's
// pipes (pipe-user-pages-soft, pipe(7)); past that it gets pipes too small to be worth it.
const (
	maxPipe   = 1 << 20
	leastPipe = 128 << 10
	mostPipes = 32
)

// A pipe holds bytes on their way to one side.
type pipe struct {
	R, W int // its ends
	N    int // bytes in it, as its user counts them
	Size int // how many it can hold
}

// Pipes are those of one loop, through which splice(2) moves bytes from one socket to another. It is not safe for concurrent use.
type Pipes struct {
	Budget *admit.Budget // of descriptors: each pipe takes two
	free   []*pipe       // not in use just now
	made   int           // in use and not
	scant  bool          // the kernel gives no pipes that are worth it
}

// Take returns an empty pipe, or nil when none is to be had: then bytes have to pass through our memory.
func (ps *Pipes) Take() *pipe {
	if n := len(ps.free); n > 0 {
		p := ps.free[n-1]
		ps.free = ps.free[:n-1]
		return p
	}
	if ps.scant || ps.made == mostPipes || !ps.Budget.Take(2) {
		return nil
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		ps.Budget.Release(2)
		return nil
	}
	p := &pipe{R: fds[0], W: fds[1]}
	ps.made++
	for want := maxPipe; want >= leastPipe && p.Size == 0; want /= 2 {
		p.Size, _ = unix.FcntlInt(uintptr(p.W), unix.F_SETPIPE_SZ, want) // fails when that is more than we may have
	}
	if p.Size < leastPipe {
		ps.scant = true
		ps.discard(p)
		return nil
	}
	return p
}

// GiveBack takes a pipe that is no longer needed. What is still in it is lost.
func (ps *Pipes) GiveBack(p *pipe) {
	if p.N > 0 {
		ps.discard(p)
	} else {
		ps.free = append(ps.free, p)
	}
}

// Made returns how many pipes there are, and how many of them are lent.
func (ps *Pipes) Made() (made, lent int) { return ps.made, ps.made - len(ps.free) }

func (ps *Pipes) discard(p *pipe) {
	socket.Close(p.R)
	socket.Close(p.W)
	ps.made--
	ps.Budget.Release(2)
}

// Close closes the pipes that are not in use.
func (ps *Pipes) Close() {
	for _, p := range ps.free {
		ps.discard(p)
	}
	ps.free = nil
}
