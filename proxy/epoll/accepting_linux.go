package epoll

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
)

// An epollTCP is one open TCP port of the epoll engine.
type epollTCP struct {
	portSocket
	loop   *loop
	number uint16
	owner  *atomic.Pointer[engine.Claim]
}

// A portSocket is the socket of a port, which a loop watches, or does not for a while: see pause.
type portSocket struct {
	fd     int
	token  token
	paused bool
	pause  time.Duration // how long the last pause was
}

// listenTCP opens the socket of a port. Package net opens it, as it knows best how to serve both
// families; what it would do with it afterwards we do ourselves.
func (e *Engine) listenTCP(addr netip.AddrPort, owner *atomic.Pointer[engine.Claim]) (engine.Socket, error) {
	l, err := e.loopFor()
	if err != nil {
		return nil, err
	}
	fd, err := openTCP(e.Ctx, e.Cfg, addr)
	if err != nil {
		return nil, err
	}
	p := &epollTCP{loop: l, portSocket: portSocket{fd: fd}, number: addr.Port(), owner: owner}
	p.loop.call(func() {
		slot, index, generation := p.loop.listeners.add()
		*slot = p
		p.token = token{listening, index, generation}
		err = p.loop.watch(fd, p.token, unix.EPOLLIN)
	})
	if err != nil {
		l.call(p.leave)
		return nil, err
	}
	return p, nil
}

// openTCP opens a listening socket. Clients inherit its options.
func openTCP(ctx context.Context, cfg engine.Config, addr netip.AddrPort) (fd int, err error) {
	config := net.ListenConfig{KeepAliveConfig: engine.KeepAlive(cfg), Control: sockopt.PrepareListen}
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
		_ = sockopt.Set(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // neither can fail
		keepWatch(fd, cfg.TCPKeepAlive)
	}
	return fd, err
}

// duplicate returns a descriptor of our own for a socket that package net has opened and is about to close.
func duplicate(raw syscall.RawConn) (fd int, err error) {
	controlErr := raw.Control(func(theirs uintptr) { fd, err = unix.FcntlInt(theirs, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(controlErr, err)
}

// OwnerChanged does nothing: TCP connections outlive the claim they began under.
func (p *epollTCP) OwnerChanged() {}

// Close returns when the port is free. The kernel resets the clients in its queue.
func (p *epollTCP) Close() {
	p.loop.call(p.leave)
	p.loop.engine.Budget.ReleaseOfListener()
}

func (p *epollTCP) leave() {
	closeFD(p.fd)
	p.loop.listeners.remove(p.token.index)
	p.paused = false
}

// How many clients a port may accept in a turn, and all ports together, if these are no more than that. Those beyond wait for the
// next, and the clients that are being served have their turn in between.
const (
	acceptsAtOnce = 8
	acceptsATurn  = 64
)

// acceptsFor is how many clients each of so many ports may accept in a turn.
func acceptsFor(ports int) int { return min(acceptsAtOnce, max(1, acceptsATurn/max(1, ports))) }

// accept accepts clients that wait. That at least one does, the kernel has told.
func (l *loop) accept(p *epollTCP) {
	if !l.engine.Budget.TryAcquire(2) {
		l.pauseAccepting(&p.portSocket)
		return
	}
	for n := 1; l.acceptOne(p, n == 1); n++ {
		if n >= l.accepts || l.late() || !l.engine.Budget.Take(2) {
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
		e.Budget.Release(2)
		switch {
		case !first:
		case errno == unix.EAGAIN || errno == unix.ECONNABORTED:
		default:
			e.Lines.ReportAccept(p.owner.Load().Key, errno)
			l.pauseAccepting(&p.portSocket)
		}
		return false
	}
	p.pause = 0
	book, ok := e.Conns.Admit(p.owner.Load(), p.number, from)
	if !ok {
		linger(fd)
		closeFD(fd)
		e.Budget.Release(2)
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
func (l *loop) serve(p *epollTCP, fd int, book engine.Connection) {
	c, index, generation := l.conns.add()
	*c = conn{
		client:     side{which: engine.ClientSide, fd: int32(fd), open: true, readable: true}, // it may have said something by now
		backend:    side{which: engine.BackendSide},
		port:       p,
		record:     book,
		index:      index,
		generation: generation,
		live:       true,
	}
	l.reach(c)
}

// pauseAccepting leaves the clients of p in the kernel's queue for a while.
func (l *loop) pauseAccepting(p *portSocket) {
	l.engine.Pauses.Add(1)
	l.suspend(p)
}

// suspend stops watching p for a while: 5 ms, and twice as long each time that this did not help, up to a second.
func (l *loop) suspend(p *portSocket) {
	_ = epollCtl(l.epfd, unix.EPOLL_CTL_DEL, p.fd, new(unix.EpollEvent)) // it is there
	p.paused = true
	p.pause = min(max(2*p.pause, engine.FirstPause), engine.LastPause)
	l.resumeIn(p.pause)
	l.paused = append(l.paused, p)
}

// starve leaves c alone for a while, because the kernel had no memory for it. No event tells when it has.
func (l *loop) starve(c *conn) {
	if !c.queued {
		c.queued = true
		l.resumeIn(starvedPause)
		l.starved = append(l.starved, c)
	}
}

const starvedPause = 20 * time.Millisecond

// resumeIn has resume called in so long, if it is not called earlier.
func (l *loop) resumeIn(pause time.Duration) {
	if len(l.paused)+len(l.starved) == 0 || l.now+pause < l.resumeAt {
		l.resumeAt = l.now + pause
	}
}

// resumesATurn is how many ports are watched again in a turn, at a system call each.
const resumesATurn = 256

// resume watches ports again wherever that was suspended, and has connections go on for which there was no memory.
func (l *loop) resume() {
	if len(l.paused)+len(l.starved) > 0 && l.now >= l.resumeAt {
		l.resuming, l.paused = append(l.resuming, l.paused...), nil
		l.unfinished = append(l.unfinished, l.starved...)
		clear(l.starved)
		l.starved = l.starved[:0]
	}
	for range min(len(l.resuming), resumesATurn) {
		p := l.resuming[0]
		l.resuming = l.resuming[1:]
		if !p.paused {
			continue // it was closed
		}
		if p.paused = false; l.watch(p.fd, p.token, unix.EPOLLIN) != nil {
			l.suspend(p) // a port that is not watched would accept nobody for ever
		}
	}
}
