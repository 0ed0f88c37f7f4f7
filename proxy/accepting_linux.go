package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/golang/glog"
	"golang.org/x/sys/unix"
)

// An epollTCP is one open TCP port of the epoll engine.
type epollTCP struct {
	loop   *loop
	fd     int
	number uint16
	owner  *atomic.Pointer[claim]
	index  int32
	era    uint32
	paused bool
	pause  time.Duration // how long the last pause was
}

// listenTCP opens the socket of a port. Package net opens it, as it knows best how to serve both
// families; what it would do with it afterwards we do ourselves.
func (e *epoll) listenTCP(addr netip.AddrPort, owner *atomic.Pointer[claim]) (socket, error) {
	l, err := e.loopFor()
	if err != nil {
		return nil, err
	}
	fd, err := openTCP(e.ctx, e.cfg, addr)
	if err != nil {
		return nil, err
	}
	p := &epollTCP{loop: l, fd: fd, number: addr.Port(), owner: owner}
	p.loop.call(func() {
		slot, index, era := p.loop.listeners.add()
		*slot = p
		p.index, p.era = index, era
		err = p.loop.watch(fd, p.ticket(), unix.EPOLLIN)
	})
	if err != nil {
		l.call(p.leave)
		return nil, err
	}
	return p, nil
}

// openTCP opens a listening socket. Clients inherit its options.
func openTCP(ctx context.Context, cfg Config, addr netip.AddrPort) (fd int, err error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive(cfg)}
	config.SetMultipathTCP(false) // its resets and half-closes are not those of TCP
	listener, err := config.Listen(ctx, "tcp", addr.String())
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	raw, err := listener.(*net.TCPListener).SyscallConn()
	if err != nil {
		return 0, err
	}
	if fd, err = duplicate(raw); err == nil {
		_ = setsockopt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // neither can fail
		keepWatch(fd, cfg.TCPKeepAlive)
	}
	return fd, err
}

// duplicate returns a descriptor of our own for a socket that package net has opened and is about to close.
func duplicate(raw syscall.RawConn) (fd int, err error) {
	controlErr := raw.Control(func(theirs uintptr) { fd, err = unix.FcntlInt(theirs, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(controlErr, err)
}

func (p *epollTCP) ticket() ticket { return ticket{listening, p.index, p.era} }

// disown does nothing: TCP connections outlive the claim they began under.
func (p *epollTCP) disown(*claim) {}

// close returns when the port is free. The kernel resets the clients in its queue.
func (p *epollTCP) close() {
	p.loop.call(p.leave)
	p.loop.engine.budget.releaseOfListener()
}

func (p *epollTCP) leave() {
	closeFD(p.fd)
	p.loop.listeners.remove(p.index)
	p.paused = false
}

// acceptsAtOnce is how many clients a port may accept in a turn. Those beyond wait for the next, and the clients that
// are being served have their turn in between.
const acceptsAtOnce = 8

// accept accepts clients that wait. That at least one does, the kernel has told.
func (l *loop) accept(p *epollTCP) {
	if !l.engine.budget.tryAcquire(2) {
		l.pauseAccepting(p)
		return
	}
	for n := 1; l.acceptOne(p, n == 1); n++ {
		if n == acceptsAtOnce || !l.engine.budget.take(2) {
			return
		}
	}
}

// acceptOne accepts one client, whose descriptors have been taken, and tells whether to go on in this turn. That
// another one than the first cannot be accepted is no news: perhaps there is none. If there is, the next turn begins with it.
func (l *loop) acceptOne(p *epollTCP, first bool) bool {
	e := l.engine
	fd, from, errno := accept(p.fd)
	if errno != 0 {
		e.budget.release(2)
		switch {
		case !first:
		case errno == unix.EAGAIN || errno == unix.ECONNABORTED || errno == unix.EINTR:
		default:
			if times, ok := e.acceptErrors.ask(1); ok {
				glog.Warningf("cannot accept clients of %s: %v; trying again until it can (%d times since such a line)", p.owner.Load().key, errno, times)
			}
			l.pauseAccepting(p)
		}
		return false
	}
	p.pause = 0
	book, ok := e.conns.admit(p.owner.Load(), p.number, from)
	if !ok {
		linger(fd)
		closeFD(fd)
		e.budget.release(2)
		return false
	}
	if other := e.lightest(l); other != l {
		other.load.Add(1) // now, for the next client is shared out by it
		if other.do(func() { other.serve(p, fd, book) }) {
			return true
		}
		other.load.Add(-1)
	}
	l.load.Add(1)
	l.serve(p, fd, book)
	return true
}

// serve begins to see a client to an endpoint. It need not have come to a port of l. It is counted in load already.
func (l *loop) serve(p *epollTCP, fd int, book connection) {
	c, index, era := l.conns.add()
	*c = conn{
		client: half{fd: int32(fd), open: true, readable: true}, // it may have said something by now
		port:   p,
		book:   book,
		index:  index,
		era:    era,
		live:   true,
		why:    undecided,
	}
	l.reach(c)
}

// pauseAccepting leaves the clients of p in the kernel's queue for a while.
func (l *loop) pauseAccepting(p *epollTCP) {
	_ = epollCtl(l.epfd, unix.EPOLL_CTL_DEL, p.fd, new(unix.EpollEvent)) // it is there
	p.paused = true
	l.engine.pauses.Add(1)
	p.pause = min(max(2*p.pause, firstPause), lastPause)
	if len(l.paused) == 0 || l.now+p.pause < l.resumeAt {
		l.resumeAt = l.now + p.pause
	}
	l.paused = append(l.paused, p)
}

// resume accepts clients again wherever that was paused.
func (l *loop) resume() {
	if len(l.paused) == 0 || l.now < l.resumeAt {
		return
	}
	for i, p := range l.paused {
		if l.paused[i] = nil; p.paused {
			p.paused = false
			_ = l.watch(p.fd, p.ticket(), unix.EPOLLIN)
		}
	}
	l.paused = l.paused[:0]
}
