package reactor

import (
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/epoll/ring"
	"kubeproxy/proxy/epoll/socket"
)

// A Poller asks the kernel what has happened on the descriptors that it watches, and waits for it. It belongs to one goroutine;
// any may call Wake.
//
// It waits in one of two ways. While events come close upon one another it blocks in epoll_pwait, and the Go runtime does not know: an
// event wakes up its thread and nothing else. The thread keeps a processor of the runtime's meanwhile, so it does that for [blockFor] at most. When
// events are rare it parks, as a goroutine does that reads from a socket: it keeps neither a processor nor a thread, and an event wakes up the
// runtime first. For that the runtime watches a second epoll descriptor, the door, which reports the events of the first one only while
// it is open:
//
//	socket ──▶ epfd ──▶ epoll_pwait             while the poller blocks
//	             └────▶ door ──▶ the runtime    while it is parked
//
// A poller with a ring waits in the ring, which polls epfd as well. Its goroutine is locked to its thread. It blocks in the same two ways,
// and needs no door: when events are rare, it tells the runtime that it waits.
type Poller struct {
	epfd     int
	waker    int             // an eventfd: written to, it ends a wait
	door     *os.File        // as the runtime knows it
	doorFD   int             // the same
	isOpen   bool            // the door
	parking  syscall.RawConn // of the door
	ready    func(uintptr) bool
	parked   bool // in the last wait
	mayBlock bool
	dense    bool // events come close upon one another: the last park was shorter than blockFor

	buffer   [eventsATurn]unix.EpollEvent
	happened int // of buffer, in the last poll

	ringing // nothing: it waits by itself

	alarm   *time.Timer   // ends a park when something is due
	alarmAt time.Duration // when that is; 0 when it is not set

	mu     sync.Mutex // guards closed, and waker from being another's
	closed bool
}

// eventsATurn is how many events, and how many completions, a wait brings at most. To end a connection takes 20 us, so a turn of
// nothing else lasts a millisecond or two. More in a turn saves nothing that was seen (docs/performance.md).
const eventsATurn = 64

// NewPoller makes a poller that watches nothing yet. mayBlock says that the runtime has processors to spare: without, the poller always parks.
func NewPoller(mayBlock bool) (*Poller, error) {
	p, err := newEpoll()
	if err != nil {
		return nil, err
	}
	p.mayBlock = mayBlock
	if err := p.makeDoor(); err != nil {
		socket.Close(p.epfd)
		socket.Close(p.waker)
		return nil, err
	}
	p.alarm = time.AfterFunc(time.Hour, p.Wake)
	return p, nil
}

// NewRingPoller makes a poller that waits in a ring. It is used by the thread that has enabled the ring; any may call Wake. mayBlock is as
// for [NewPoller].
func NewRingPoller(r *ring.Ring, mayBlock bool) (*Poller, error) {
	p, err := newEpoll()
	if err != nil {
		return nil, err
	}
	p.mayBlock = mayBlock
	p.ring, p.completions = r, make([]ring.Completion, len(p.buffer))
	return p, nil
}

// newEpoll opens the descriptors of a poller.
func newEpoll() (*Poller, error) {
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
	return p, nil
}

// makeDoor has the runtime wait for the events of p, as it does for a socket in non-blocking mode.
func (p *Poller) makeDoor() (err error) {
	if p.doorFD, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	_ = unix.SetNonblock(p.doorFD, true) // cannot fail on a descriptor that is open
	p.door = os.NewFile(uintptr(p.doorFD), "epoll")
	if err = epollCtl(p.doorFD, unix.EPOLL_CTL_ADD, p.epfd, new(unix.EpollEvent)); err == nil {
		p.parking, err = p.door.SyscallConn()
	}
	if err != nil {
		p.door.Close()
		return os.NewSyscallError("epoll_ctl", err)
	}
	p.ready = func(uintptr) bool {
		if p.Poll(); p.happened == 0 {
			p.parked = true
			p.openDoor()
		}
		return p.happened > 0
	}
	return nil
}

// openDoor opens the door, unless it is open, and asks for what has happened since the last poll. The kernel tells nobody of that when the door
// opens, if the door had events to tell when it was closed: it is still in the kernel's list of those that have.
func (p *Poller) openDoor() {
	if !p.isOpen {
		p.setDoor(true)
		p.Poll()
	}
}

// setDoor opens or closes the door. It changes what the door reports; to add and remove epfd would have the kernel look for cycles through
// all that epfd watches, each time.
func (p *Poller) setDoor(open bool) {
	if p.isOpen == open {
		return
	}
	p.isOpen = open
	ev := new(unix.EpollEvent)
	if open {
		ev.Events = unix.EPOLLIN
	}
	_ = epollCtl(p.doorFD, unix.EPOLL_CTL_MOD, p.epfd, ev) // it is watched
}

// Close closes p. From then on only Wake may be called.
func (p *Poller) Close() {
	if p.ring == nil {
		p.alarm.Stop()
		p.door.Close()
	} else {
		p.ring.Submit() // what is still to be closed
		p.ring.Close()
	}
	socket.Close(p.epfd)
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

// blockFor is how long a poller blocks at most before it parks. The runtime's monitor interferes with whoever keeps a processor for longer.
const blockFor = 10 * time.Millisecond

// Wait waits until something has happened, or a time has come, and reports whether it had to park. Times are those of
// package monotonic; now must not decrease.
func (p *Poller) Wait(now, until time.Duration) (parked bool) {
	if p.ring != nil {
		p.waitInRing(now, until)
		return false
	}
	if p.dense && p.mayBlock {
		p.ask(min(until-now, blockFor))
		if p.happened > 0 || until-now <= blockFor {
			return false
		}
	}
	p.setAlarm(until)
	p.parked = false
	if err := p.parking.Read(p.ready); err != nil {
		panic(err) // the descriptor is ours, and open
	}
	if p.mayBlock {
		p.setDoor(false)
		p.dense = monotonic.Now()-now < blockFor
	}
	return p.parked
}

// setAlarm makes sure that a wait ends at a time. An alarm that has gone off since the turn began may have been drained with other wakes,
// so what counts is the time now.
func (p *Poller) setAlarm(due time.Duration) {
	now := monotonic.Now()
	if p.alarmAt > now && p.alarmAt <= due {
		return // it will go off early enough
	}
	if p.alarmAt = due; due < monotonic.Never {
		p.alarm.Reset(due - now)
	}
}

// Poll asks the kernel what has happened. It never waits, so the scheduler need not know of it: that
// saves a good part of its cost.
func (p *Poller) Poll() {
	if p.ring != nil {
		p.wait(0, false)
	}
	p.ask(0)
}

// ask asks the kernel what has happened, and waits for it for a time, to the millisecond. A signal ends the wait: by signals the runtime
// asks for the processor that the thread keeps.
func (p *Poller) ask(wait time.Duration) {
	milliseconds := max(0, wait+time.Millisecond-1) / time.Millisecond
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.epfd), uintptr(unsafe.Pointer(&p.buffer[0])), uintptr(len(p.buffer)), uintptr(milliseconds), 0, 0)
	if p.happened = int(n); errno != 0 {
		p.happened = 0 // EINTR
	}
}

// waitInRing submits what was asked of the ring, and waits for completions, and for events. It blocks while the runtime does not know as
// long as they come close upon one another, as without a ring.
//
// The completion of a send does not end the wait, but may tell that the socket had no room for all of it. Nothing else tells that, so the wait is
// a short one. When events are rare it is none at all: one turn more costs nothing then.
func (p *Poller) waitInRing(now, until time.Duration) {
	p.poll(p.epfd)
	if !p.dense && p.ring.UnsubmittedSends() > 0 {
		p.wait(0, false)
	} else if !p.blockInRing(until - now) {
		atMost := until - now
		if p.ring.UnsubmittedSends() > 0 {
			atMost = min(atMost, blockFor)
		}
		p.wait(atMost, true)
		p.dense = monotonic.Now()-now < blockFor
	}
	if p.happened = 0; !p.polled {
		p.ask(0)
	}
}

// blockInRing waits for blockFor at most, if that is the way to wait for now, and reports whether the wait is over.
func (p *Poller) blockInRing(atMost time.Duration) (over bool) {
	if !p.dense || !p.mayBlock {
		return false
	}
	p.wait(min(atMost, blockFor), false)
	return p.completed > 0 || !p.polled || atMost <= blockFor
}

func epollCtl(epfd, op, fd int, ev *unix.EpollEvent) error {
	_, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epfd), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(ev)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
