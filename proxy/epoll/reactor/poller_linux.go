package reactor

import (
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/epoll/slab"
	"kubeproxy/proxy/epoll/socket"
)

// A Poller asks the kernel what has happened on the descriptors that it watches, and waits for it. It belongs to one goroutine;
// any may call Wake.
type Poller struct {
	epfd    int
	waker   int             // an eventfd: written to, it ends a wait
	file    *os.File        // epfd, as the Go runtime knows it
	parking syscall.RawConn // of file
	ready   func(uintptr) bool
	parked  bool // in the last wait

	buffer   [256]unix.EpollEvent
	happened int // of buffer, in the last poll

	alarm   *time.Timer   // ends a wait when something is due
	alarmAt time.Duration // when that is; 0 when it is not set

	mu     sync.Mutex // guards closed, and waker from being another's
	closed bool
}

// A Token is what an event is about: its kind, and which one of that kind. The kernel gives back what it was
// given, 64 bits, together with each event. A number alone would not do: within one turn a
// connection may end and another begin in its place, and a late event of the first must not reach the second.
// So each slot has a generation, which grows with each use: stale events are dropped.
type Token struct {
	Kind       Kind
	Index      int32
	Generation uint32 // of slab.GenerationBits
}

// A Kind says what a token is about.
type Kind uint32

// Waker is the kind of the event that Wake causes: see Drain. Others are for the loop to name, up to 7.
const Waker Kind = 0

func (t Token) event(mask uint32) unix.EpollEvent {
	return unix.EpollEvent{Events: mask, Fd: t.Index, Pad: int32(uint32(t.Kind)<<slab.GenerationBits | t.Generation&(1<<slab.GenerationBits-1))}
}

// TokenOf returns the token of an event.
func TokenOf(ev *unix.EpollEvent) Token {
	return Token{Kind(uint32(ev.Pad) >> slab.GenerationBits), ev.Fd, uint32(ev.Pad) & (1<<slab.GenerationBits - 1)}
}

// NewPoller makes a poller that watches nothing yet.
func NewPoller() (*Poller, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	p := &Poller{epfd: epfd}
	if p.waker, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		socket.Close(epfd)
		return nil, os.NewSyscallError("eventfd", err)
	}
	if err := p.Watch(p.waker, Token{Kind: Waker}, unix.EPOLLIN|unix.EPOLLET); err != nil {
		socket.Close(epfd)
		socket.Close(p.waker)
		return nil, err
	}
	// An epoll descriptor can itself be waited for. In non-blocking mode the Go runtime waits for it
	// as for any socket: the loop parks as a goroutine does, and keeps no processor and no thread.
	// Blocking in epoll_wait would cost the goroutines beside it milliseconds: its thread would keep its
	// processor until the runtime's monitor takes that away, and the monitor looks every 10 ms while
	// little happens.
	_ = unix.SetNonblock(epfd, true) // cannot fail on a descriptor that is open
	p.file = os.NewFile(uintptr(epfd), "epoll")
	if p.parking, err = p.file.SyscallConn(); err != nil {
		p.file.Close()
		socket.Close(p.waker)
		return nil, err
	}
	p.ready = func(uintptr) bool {
		p.Poll()
		p.parked = p.parked || p.happened == 0
		return p.happened > 0
	}
	p.alarm = time.AfterFunc(time.Hour, p.Wake)
	return p, nil
}

// Close closes p. From then on only Wake may be called.
func (p *Poller) Close() {
	p.alarm.Stop()
	p.file.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	socket.Close(p.waker)
}

// Wake ends a wait, the present or else the next one. It does nothing once p is closed.
func (p *Poller) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	one := [8]byte{7: 1}
	_, _ = socket.Write(p.waker, one[:]) // fails only when it is full: then the wait ends all the same
}

// Drain empties what Wake has written.
func (p *Poller) Drain() {
	var counter [8]byte
	_, _ = socket.Read(p.waker, counter[:])
}

// Watch has the kernel tell of what happens on a descriptor. Closing it ends that.
func (p *Poller) Watch(fd int, t Token, mask uint32) error {
	ev := t.event(mask)
	return os.NewSyscallError("epoll_ctl", epollCtl(p.epfd, unix.EPOLL_CTL_ADD, fd, &ev))
}

// Change has the kernel tell of something else on a descriptor that is watched.
func (p *Poller) Change(fd int, t Token, mask uint32) {
	ev := t.event(mask)
	_ = epollCtl(p.epfd, unix.EPOLL_CTL_MOD, fd, &ev) // it is watched
}

// Unwatch has the kernel tell no more of a descriptor. It need not be watched.
func (p *Poller) Unwatch(fd int) {
	_ = epollCtl(p.epfd, unix.EPOLL_CTL_DEL, fd, new(unix.EpollEvent))
}

// Events are those of the last wait or poll.
func (p *Poller) Events() []unix.EpollEvent { return p.buffer[:p.happened] }

// Wait waits until something has happened, or a time has come, and reports whether it had to park. Times are those of
// package monotonic; now must not decrease.
func (p *Poller) Wait(now, until time.Duration) (parked bool) {
	p.setAlarm(now, until)
	p.parked = false
	if err := p.parking.Read(p.ready); err != nil {
		panic(err) // the descriptor is ours, and open
	}
	return p.parked
}

// setAlarm makes sure that a wait ends at a time.
func (p *Poller) setAlarm(now, due time.Duration) {
	if p.alarmAt > now && p.alarmAt <= due {
		return // it will go off early enough
	}
	if p.alarmAt = due; due < monotonic.Never {
		p.alarm.Reset(due - monotonic.Now())
	}
}

// Poll asks the kernel what has happened. It never waits, so the scheduler need not know of it: that
// saves a good part of its cost.
func (p *Poller) Poll() {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.epfd), uintptr(unsafe.Pointer(&p.buffer[0])), uintptr(len(p.buffer)), 0, 0, 0)
	if p.happened = int(n); errno != 0 {
		p.happened = 0 // EINTR
	}
}

func epollCtl(epfd, op, fd int, ev *unix.EpollEvent) error {
	_, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epfd), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(ev)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
