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
//
// A wait has two stages. First the thread blocks in the kernel, as it would in C. Then the goroutine parks:
//
//	        for blockTime at most                 for as long as it takes
//	Wait ──▶ epoll_pwait(epfd) ── no event ──▶ the runtime waits for bell ──▶ Poll
//
// The kernel wakes a blocked thread directly. But the thread keeps a P, one of the GOMAXPROCS places where goroutines run, and the
// runtime does not know that it only waits. A parked goroutine keeps neither thread nor P, but each event then wakes two
// threads: the one that waits for the runtime, and the one that runs the goroutine. So a busy loop blocks, and an idle one parks.
//
// If the runtime watched epfd all the time, it would wake a thread for each event, also while the loop blocks. So it watches bell, a
// second epoll descriptor, and bell watches epfd only while the goroutine is parked.
type Poller struct {
	epfd      int
	waker     int             // an eventfd: written to, it ends a wait
	bell      int             // an epoll descriptor: readable while the goroutine is parked and epfd has events
	file      *os.File        // bell, as the Go runtime knows it
	parking   syscall.RawConn // of file
	ready     func(uintptr) bool
	parked    bool          // in the last wait
	blockTime time.Duration // 0 if the thread must not block

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

// NewPoller makes a poller that watches nothing yet. A wait blocks a thread and its P for blockTime before it parks; 0 is for a
// process that has no P to spare.
func NewPoller(blockTime time.Duration) (*Poller, error) {
	p := &Poller{epfd: -1, waker: -1, bell: -1, blockTime: blockTime}
	if err := p.open(); err != nil {
		p.closeAll()
		return nil, err
	}
	p.ready = func(uintptr) bool {
		p.Poll()
		if p.happened == 0 && !p.parked {
			if err := epollCtl(p.bell, unix.EPOLL_CTL_ADD, p.epfd, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
				return true // the kernel has no memory for it: the loop asks again, and does not park
			}
			p.parked = true
			p.Poll() // for what came before bell watched
		}
		return p.happened > 0
	}
	p.alarm = time.AfterFunc(time.Hour, p.Wake)
	return p, nil
}

func (p *Poller) open() (err error) {
	if p.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if p.waker, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	if err := p.Watch(p.waker, Token{Kind: Waker}, unix.EPOLLIN|unix.EPOLLET); err != nil {
		return err
	}
	if p.bell, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	// An epoll descriptor can itself be waited for. In non-blocking mode the Go runtime waits for it as for any socket.
	_ = unix.SetNonblock(p.bell, true) // cannot fail on a descriptor that is open
	p.file = os.NewFile(uintptr(p.bell), "epoll")
	p.parking, err = p.file.SyscallConn()
	return err
}

// closeAll closes what open has opened.
func (p *Poller) closeAll() {
	if p.file != nil {
		p.file.Close() // bell
		p.bell = -1
	}
	for _, fd := range []int{p.bell, p.waker, p.epfd} {
		if fd >= 0 {
			socket.Close(fd)
		}
	}
}

// Close closes p. Nobody may call anything but Wake any more.
func (p *Poller) Close() {
	p.alarm.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.closeAll()
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
	if patience := min(p.blockTime, until-now); patience >= time.Millisecond {
		if p.block(patience); p.happened > 0 {
			return false
		}
		if now = monotonic.Now(); now >= until {
			return false
		}
	}
	p.setAlarm(now, until)
	p.parked = false
	if err := p.parking.Read(p.ready); err != nil {
		panic(err) // the descriptor is ours, and open
	}
	if p.parked {
		_ = epollCtl(p.bell, unix.EPOLL_CTL_DEL, p.epfd, new(unix.EpollEvent)) // it is there
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

// Poll asks the kernel what has happened, and does not wait.
func (p *Poller) Poll() { p.block(0) }

// block asks the kernel what has happened, and waits for it, in whole milliseconds. Signals end the wait: the runtime sends one to a
// thread that has run one goroutine for 10 ms, and to each that has to stop for the garbage collector.
//
// The scheduler is not told of the call. This saves a good part of its cost.
func (p *Poller) block(patience time.Duration) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.epfd), uintptr(unsafe.Pointer(&p.buffer[0])), uintptr(len(p.buffer)),
		uintptr(patience.Milliseconds()), 0, 0)
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
