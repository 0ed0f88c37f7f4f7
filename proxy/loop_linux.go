package proxy

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A loop carries the connections of the epoll engine. It is one goroutine that never waits for
// anybody in particular: it asks the kernel what has happened, deals with it, and asks again.
//
//	one turn:  wait ──▶ deal with each event ──▶ go on with those that were
//	            ▲       accept, connect, pump    interrupted for fairness
//	            │                                           │
//	            └── do what others ask for ◀── see whose time has come
//
// What a loop owns (listeners, connections, lists, buffers) is touched by its goroutine alone, so
// none of it has a lock. Others speak to it through [loop.do].
type loop struct {
	engine   *epoll
	epfd     int
	waker    int             // an eventfd: written to, it ends a wait
	file     *os.File        // epfd, as the Go runtime knows it
	parking  syscall.RawConn // of file
	ready    func(uintptr) bool
	happened int           // events in the present turn
	parked   bool          // in the last wait
	yielded  time.Duration // when it last parked, or let others run

	turn       uint64        // how many there have been
	now        time.Duration // by the clock of sinceStart, read once a turn
	events     [256]unix.EpollEvent
	buffer     [chunk]byte // what is read passes through it; nothing stays in it
	conns      slots[conn]
	listeners  slots[*epollTCP]
	paused     []*epollTCP // with clients in their queues, and no descriptors for them
	resumeAt   time.Duration
	udpPorts   slots[*epollUDP]
	flows      slots[*flow]
	begun      int // flows, ever
	intake     *intake
	outgo      *outgo
	sweepFlows time.Duration // when flows are looked at next
	share      int           // what each that carries in bulk may move in this turn
	spliced    int           // how often one has, in this turn
	unfinished []*conn       // interrupted in this turn, to go on in the next
	resumed    []*conn       // empty; the room of those that went on in the last
	lists      [listIDs]ring
	dials      spare[dial]
	tails      spare[tail]
	pipes      pipes

	alarm   *time.Timer   // ends a wait when something is due
	alarmAt time.Duration // when that is; 0 when it is not set

	load atomic.Int64 // how many connections it has, and will have been handed, for other loops to see

	mu     sync.Mutex // guards the fields below
	asked  []func()
	closed bool
}

// What an event is about: its kind, and which one of that kind. The kernel gives back what it was
// given, 64 bits, together with each event. A number alone would not do: within one turn a
// connection may end and another begin in its place, and a late event of the first must not reach the second.
// So each place counts its tenants.
type ticket struct {
	kind  ticketKind
	index int32
	era   uint32 // 29 bits
}

type ticketKind uint32

const (
	waker ticketKind = iota
	listening
	clientSide
	backendSide
	asking    // a UDP port has datagrams of clients
	answering // the endpoint of a flow has sent some
)

const eraBits = 29

func (t ticket) event(mask uint32) unix.EpollEvent {
	return unix.EpollEvent{Events: mask, Fd: t.index, Pad: int32(uint32(t.kind)<<eraBits | t.era&(1<<eraBits-1))}
}

func ticketOf(ev *unix.EpollEvent) ticket {
	return ticket{ticketKind(uint32(ev.Pad) >> eraBits), ev.Fd, uint32(ev.Pad) & (1<<eraBits - 1)}
}

func newLoop(e *epoll) (*loop, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	l := &loop{engine: e, epfd: epfd, now: sinceStart(), pipes: pipes{budget: e.budget}}
	for i := range l.lists {
		l.lists[i].init()
	}
	if l.waker, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		closeFD(epfd)
		return nil, os.NewSyscallError("eventfd", err)
	}
	if err := l.watch(l.waker, ticket{kind: waker}, unix.EPOLLIN|unix.EPOLLET); err != nil {
		closeFD(epfd)
		closeFD(l.waker)
		return nil, err
	}
	// An epoll descriptor can itself be waited for. In non-blocking mode the Go runtime waits for it
	// as for any socket: the loop parks as a goroutine does, and keeps no processor and no thread.
	// Blocking in epoll_wait would cost the goroutines beside it milliseconds: its thread would keep its
	// processor until the runtime's monitor takes that away, and the monitor looks every 10 ms while
	// little happens.
	_ = unix.SetNonblock(epfd, true) // cannot fail on a descriptor that is open
	l.file = os.NewFile(uintptr(epfd), "epoll")
	if l.parking, err = l.file.SyscallConn(); err != nil {
		l.file.Close()
		closeFD(l.waker)
		return nil, err
	}
	l.ready = func(uintptr) bool {
		l.happened = l.poll()
		l.parked = l.parked || l.happened == 0
		return l.happened > 0
	}
	l.alarm = time.AfterFunc(time.Hour, func() { l.do(func() {}) })
	return l, nil
}

// run turns until the engine is cut and everything has ended.
func (l *loop) run() {
	defer l.close()
	for {
		l.wait()
		l.now = sinceStart()
		if l.parked {
			l.parked, l.yielded = false, l.now
		}
		l.turn++
		l.share, l.spliced = share(l.spliced), 0
		for i := range l.happened {
			l.deal(&l.events[i])
		}
		l.proceed()
		l.sendReplies()
		l.expire()
		if !l.oblige() {
			return
		}
	}
}

// yieldAfter is how long a loop may be busy without letting the Go scheduler look around.
//
// The runtime asks the kernel what goroutines wait for, and looks at their timers, when a thread of its has nothing to do. When a loop
// parks, it is often the loop's thread that asks. Once it is woken up and always finds something to do, nobody asks, until the
// runtime's monitor interferes after 10 ms: so long a change in the registry would not be seen. Yielding wakes up a thread that
// takes over, which is why it is not done in each turn. Nor while connections are unfinished: the loop comes back on another thread, and bulk
// that is moved from one processor to the other every 4 ms costs a seventh more.
const yieldAfter = 4 * time.Millisecond

// yield lets the scheduler look around if it has not done so for long.
func (l *loop) yield() {
	if l.now-l.yielded >= yieldAfter {
		l.yielded = l.now
		runtime.Gosched()
	}
}

func (l *loop) close() {
	l.alarm.Stop()
	l.pipes.close()
	l.file.Close()
	closeFD(l.waker)
}

// wait returns when something has happened. While connections are unfinished it does not wait.
func (l *loop) wait() {
	if len(l.unfinished) > 0 {
		l.happened = l.poll()
		return
	}
	l.yield()
	l.setAlarm()
	if err := l.parking.Read(l.ready); err != nil {
		panic(err) // the descriptor is ours, and open
	}
}

// poll asks the kernel what has happened. It never waits, so the scheduler need not know of it: that
// saves a good part of its cost.
func (l *loop) poll() int {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epfd), uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events)), 0, 0, 0)
	if errno != 0 {
		return 0 // EINTR
	}
	return int(n)
}

// watch has the kernel tell of what happens on a descriptor. Closing it ends that.
func (l *loop) watch(fd int, t ticket, mask uint32) error {
	ev := t.event(mask)
	return os.NewSyscallError("epoll_ctl", epollCtl(l.epfd, unix.EPOLL_CTL_ADD, fd, &ev))
}

// deal deals with one event, unless it is about something that has ended.
func (l *loop) deal(ev *unix.EpollEvent) {
	t := ticketOf(ev)
	switch t.kind {
	case waker:
		var counter [8]byte
		_, _ = read(l.waker, counter[:]) // it only has to be emptied
	case listening:
		if p := l.listeners.at(t.index, t.era); p != nil {
			l.accept(*p)
		}
	case clientSide:
		if c := l.conns.at(t.index, t.era); c != nil {
			l.stirred(c, &c.client, &c.backend, ev.Events)
		}
	case backendSide:
		if c := l.conns.at(t.index, t.era); c != nil {
			if c.dial != nil {
				l.progress(c, ev.Events)
			} else {
				l.stirred(c, &c.backend, &c.client, ev.Events)
			}
		}
	case asking:
		if p := l.udpPorts.at(t.index, t.era); p != nil {
			l.receive(*p)
		}
	case answering:
		if f := l.flows.at(t.index, t.era); f != nil {
			l.answers(*f)
		}
	}
}

// proceed goes on with the connections that were interrupted.
func (l *loop) proceed() {
	if len(l.unfinished) == 0 {
		return
	}
	again := l.unfinished
	l.unfinished = l.resumed // they may be interrupted once more
	for i, c := range again {
		again[i] = nil
		c.queued = false
		if c.live && c.dial == nil {
			l.pumpBoth(c)
		}
	}
	l.resumed = again[:0]
}

// do has the loop call f in its next turn, and tells whether it will: false once it has ended.
func (l *loop) do(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.asked = append(l.asked, f)
	if len(l.asked) == 1 {
		l.wake()
	}
	return true
}

// call has the loop call f, and waits until it has.
func (l *loop) call(f func()) bool {
	done := make(chan struct{})
	if !l.do(func() { f(); close(done) }) {
		return false
	}
	<-done
	return true
}

// wake ends a wait. The loop must not have ended, for its descriptors may be others' then: who is not the loop holds mu.
func (l *loop) wake() {
	one := [8]byte{7: 1}
	_, _ = write(l.waker, one[:]) // fails only when it is full: then the wait ends all the same
}

// oblige does what others have asked for, and tells whether the loop is to go on.
func (l *loop) oblige() bool {
	for {
		l.mu.Lock()
		asked := l.asked
		l.asked = nil
		if len(asked) == 0 {
			closed := l.engine.draining.Load() && l.idle()
			l.closed = closed
			l.mu.Unlock()
			return !closed
		}
		l.mu.Unlock()
		for _, f := range asked {
			f()
		}
	}
}

// idle tells whether the loop has nothing left to carry.
func (l *loop) idle() bool { return l.conns.used+l.listeners.used+l.udpPorts.used+l.flows.used == 0 }
