package epoll

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/monotonic"
)

// A loop carries the connections of the epoll engine. It is one goroutine that never waits for
// anybody in particular: it asks the kernel what has happened, deals with it, and asks again.
//
//	one turn:  wait ──▶ deal with each event ──▶ go on with those that were
//	            ▲       those that cost little   interrupted for fairness
//	            │       first, then the others       │
//	            │                                           │
//	            └── do what others ask for ◀── see whose time has come
//
// Everybody on the loop waits while a turn lasts, so each of its parts has a budget, however much there is to do: that many
// events, accepts, bytes, datagrams, looks, requests. What is beyond it is done in the next turn, after the events
// that have come meanwhile. Besides, all parts share [turnTime]: once it is used up, each part does its minimum.
//
// What a loop owns (listeners, connections, lists, buffers) is touched by its goroutine alone, so
// none of it has a lock. Others speak to it through [loop.do].
type loop struct {
	engine   *Engine
	number   int // of the loop
	epfd     int
	waker    int             // an eventfd: written to, it ends a wait
	file     *os.File        // epfd, as the Go runtime knows it
	parking  syscall.RawConn // of file
	ready    func(uintptr) bool
	happened int           // events in the present turn
	parked   bool          // in the last wait
	yielded  time.Duration // when it last parked, or let others run

	turn       uint64               // how many there have been
	clock      func() time.Duration // Now, but in tests
	now        time.Duration        // by the clock, read once a turn
	events     [256]unix.EpollEvent
	buffer     [chunk]byte // what is read passes through it; nothing stays in it
	conns      slab[conn]
	listeners  slab[*epollTCP]
	paused     []*portSocket // with clients or datagrams in their queues, which cannot be had for now
	starved    []*conn       // the kernel had no memory for them
	resumeAt   time.Duration // of both
	resuming   []*portSocket // no longer paused, and not watched yet
	sessions   sessions
	accepts    int     // how many clients each port may accept in this turn
	share      int     // what each that carries in bulk may move in this turn
	bulky      int     // how many have carried in bulk, in this turn
	moved      int     // bytes, in this turn
	deferred   []token // of clients and sessions whose search for an endpoint goes on in a later turn
	attempts   int     // made for such in a turn
	attemptsOf uint64  // that turn
	unfinished []*conn // interrupted in this turn, to go on in the next
	resumed    []*conn // empty; the room of those that went on in the last
	timers     timers
	dials      freeList[dial]
	tails      freeList[tail]
	pipes      pipes

	alarm   *time.Timer   // ends a wait when something is due
	alarmAt time.Duration // when that is; 0 when it is not set

	heartbeat heartbeat
	turns     turnTimes

	load atomic.Int64 // how many connections it has, and will have been handed, for other loops to see

	posted []func()   // what others have asked for, and was taken from asked
	mu     sync.Mutex // guards the fields below
	asked  []func()
	closed bool
}

// What an event is about: its kind, and which one of that kind. The kernel gives back what it was
// given, 64 bits, together with each event. A number alone would not do: within one turn a
// connection may end and another begin in its place, and a late event of the first must not reach the second.
// So each slot has a generation, which grows with each use: stale events are dropped.
type token struct {
	kind       tokenKind
	index      int32
	generation uint32 // 29 bits
}

type tokenKind uint32

const (
	waker     tokenKind = iota
	listening           // a TCP port has clients
	clientSide
	backendSide
	asking    // a UDP port has datagrams of clients
	answering // the endpoint of a session has sent some
)

const generationBits = 29

func (t token) event(mask uint32) unix.EpollEvent {
	return unix.EpollEvent{Events: mask, Fd: t.index, Pad: int32(uint32(t.kind)<<generationBits | t.generation&(1<<generationBits-1))}
}

func tokenOf(ev *unix.EpollEvent) token {
	return token{tokenKind(uint32(ev.Pad) >> generationBits), ev.Fd, uint32(ev.Pad) & (1<<generationBits - 1)}
}

func newLoop(e *Engine, number int) (*loop, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	l := &loop{engine: e, number: number, epfd: epfd, clock: monotonic.Now, now: monotonic.Now(), pipes: pipes{budget: e.Budget}}
	l.timers.init()
	l.sessions.loop = l
	if l.waker, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		closeFD(epfd)
		return nil, os.NewSyscallError("eventfd", err)
	}
	if err := l.watch(l.waker, token{kind: waker}, unix.EPOLLIN|unix.EPOLLET); err != nil {
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
	l.turns.begin(l.now)
	for {
		l.wait()
		l.now = l.clock()
		l.turns.begin(l.now)
		if l.parked {
			l.parked, l.yielded = false, l.now
		}
		l.turn++
		l.apportion()
		l.dealWithAll()
		l.proceed()
		l.goOnSearching()
		l.sessions.out.send()
		l.expire()
		if !l.runPosted() {
			l.turns.end(monotonic.Now())
			return
		}
	}
}

// turnTime is how much time a turn has for work that can wait: accepting more clients, bulk, looks, requests. Once it is
// used up, each part of the turn does no more than its minimum. A connection that says little so waits for
// about this long, whatever the others do.
//
// leastATurn is the minimum of the parts that have a queue, so that each queue moves on in every turn.
const (
	turnTime   = time.Millisecond
	leastATurn = 8
)

// late reports whether the turn has used up its time.
func (l *loop) late() bool { return l.clock()-l.now >= turnTime }

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

// apportion sets how much each may have of the turn that begins.
func (l *loop) apportion() {
	ports := 0
	for i := range l.happened {
		if tokenOf(&l.events[i]).kind == listening {
			ports++
		}
	}
	l.accepts = acceptsFor(ports)
	l.share, l.bulky = share(l.bulky), 0
	l.moved, l.sessions.datagrams = 0, 0
}

// wait ends a turn, and returns when something has happened. It does not wait while there is something left to do.
func (l *loop) wait() {
	l.turns.end(monotonic.Now())
	if len(l.unfinished)+len(l.deferred) > 0 {
		l.happened = l.poll()
		return
	}
	l.yield()
	due := l.nextDue()
	if len(l.posted)+len(l.resuming) > 0 || due <= l.now {
		l.happened = l.poll()
		return
	}
	l.setAlarm(due)
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
func (l *loop) watch(fd int, t token, mask uint32) error {
	ev := t.event(mask)
	return os.NewSyscallError("epoll_ctl", epollCtl(l.epfd, unix.EPOLL_CTL_ADD, fd, &ev))
}

// dealWithAll deals with what has happened in a turn: first with the events that cost little, then with the others.
func (l *loop) dealWithAll() {
	if l.happened == 1 {
		l.deal(&l.events[0])
		return
	}
	costly := 0
	for i := range l.happened {
		if ev := &l.events[i]; l.isCostly(ev) {
			l.events[costly] = *ev
			costly++
		} else {
			l.deal(ev)
		}
	}
	for i := range costly {
		if c, s := l.carried(&l.events[i]); c != nil && l.late() {
			s.stir(l.events[i].Events)
			l.interrupt(c)
		} else {
			l.deal(&l.events[i])
		}
	}
}

// isCostly reports whether an event is about a new client, or about a connection that carries in bulk or has stalled.
func (l *loop) isCostly(ev *unix.EpollEvent) bool {
	switch tokenOf(ev).kind {
	case listening:
		return true
	case clientSide, backendSide:
		c, _ := l.carried(ev)
		return c == nil || c.client.isBusy() || c.backend.isBusy()
	}
	return false
}

// carried returns the connection that an event is about, and which side of it. It returns nil if the event is about
// something else, or if the connection still looks for an endpoint.
func (l *loop) carried(ev *unix.EpollEvent) (*conn, *side) {
	t := tokenOf(ev)
	if t.kind != clientSide && t.kind != backendSide {
		return nil, nil
	}
	c := l.conns.at(t.index, t.generation)
	switch {
	case c == nil || c.dial != nil:
		return nil, nil
	case t.kind == clientSide:
		return c, &c.client
	}
	return c, &c.backend
}

// deal deals with one event, unless it is about something that has ended.
func (l *loop) deal(ev *unix.EpollEvent) {
	t := tokenOf(ev)
	switch t.kind {
	case waker:
		var counter [8]byte
		_, _ = read(l.waker, counter[:]) // it only has to be emptied
	case listening:
		if p := l.listeners.at(t.index, t.generation); p != nil {
			l.accept(*p)
		}
	case clientSide:
		if c := l.conns.at(t.index, t.generation); c != nil {
			l.stirred(c, &c.client, &c.backend, ev.Events)
		}
	case backendSide:
		if c := l.conns.at(t.index, t.generation); c != nil {
			if c.dial != nil {
				l.progress(c, ev.Events)
			} else {
				l.stirred(c, &c.backend, &c.client, ev.Events)
			}
		}
	case asking:
		if p := l.sessions.ports.at(t.index, t.generation); p != nil {
			l.sessions.receive(*p)
		}
	case answering:
		if f := l.sessions.all.at(t.index, t.generation); f != nil {
			l.sessions.answers(*f)
		}
	}
}

// proceed goes on with connections that were interrupted, as many as the turn has time and room for; the others come first
// in the next.
func (l *loop) proceed() {
	if len(l.unfinished) == 0 {
		return
	}
	all := l.unfinished
	l.unfinished = l.resumed // for those that are interrupted once more
	n := 0
	for ; n < min(len(all), turnTotal/leastBudget) && (n < leastATurn || !l.late()); n++ {
		c := all[n]
		c.queued = false
		if c.live && c.dial == nil {
			l.goOn(c)
		}
	}
	l.unfinished = slices.Insert(l.unfinished, 0, all[n:]...)
	clear(all)
	l.resumed = all[:0]
}

// do has the loop call f in one of its next turns, in the order of the calls, and reports whether it will: false once it
// has ended. f is one step of the loop: it must not take longer than a millisecond, nor wait for anything.
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

// inSteps has the loop call step with 0, and then with what it returned the last time, until that is negative, and waits
// for the end. Events are dealt with in between.
func (l *loop) inSteps(step func(from int) (next int)) {
	for from := 0; from >= 0; {
		if !l.call(func() { from = step(from) }) {
			return
		}
	}
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

// postedATurn is how many requests of others are met in a turn. One that begins to serve a client takes about 50 us.
const postedATurn = 64

// runPosted does what others have asked for, as much as a turn has room for, and reports whether the loop is to go on. What
// they ask for meanwhile is left to the next turn.
func (l *loop) runPosted() bool {
	l.takeRequests()
	for n := range min(len(l.posted), postedATurn) {
		if n >= leastATurn && l.late() {
			break
		}
		f := l.posted[0]
		l.posted[0] = nil
		l.posted = l.posted[1:]
		f()
	}
	// Requests that came while others were left over have woken up the loop already, and do so only once.
	l.takeRequests()
	if !l.engine.draining.Load() || len(l.posted) > 0 || !l.idle() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = len(l.asked) == 0
	return !l.closed
}

// takeRequests takes what others have asked for, unless some of the last time is left.
func (l *loop) takeRequests() {
	if len(l.posted) > 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.posted, l.asked = l.asked, nil
}

// idle tells whether the loop has nothing left to carry.
func (l *loop) idle() bool {
	return l.conns.used+l.listeners.used+l.sessions.ports.used+l.sessions.all.used == 0
}
