package epoll

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/datagrams"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/relay"
	"kubeproxy/proxy/epoll/ring"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
)

// A loop carries connections and UDP sessions. It is one goroutine that never waits for
// anybody in particular: it asks the kernel what has happened, deals with it, and asks again.
//
//	one turn:  wait ──▶ deal with each event ──▶ go on with those that were
//	            ▲       those that cost little   interrupted for fairness
//	            │       first, then the others       │
//	            │                                           │
//	            └── do what others ask for ◀── see whose time has come
//
// All clients of the loop wait while a turn lasts, so each of its parts has a budget, however much there is to do: that many
// events, accepts, bytes, datagrams, looks, requests. What is beyond it is done in the next turn, after the events
// that have come meanwhile. Besides, all parts share [reactor.TurnTime]: once it is used up, each part does its minimum.
//
// The loop itself waits, hands each event to its owner, and divides the turn. What it holds has an owner each, which knows only
// those below it:
//
//	listeners      accept clients                 sessions   carry datagrams
//	dialler        finds each an endpoint             │
//	relays         carry bytes                        │
//	backlog        who goes on in a later turn        │
//	conns          when each is looked at             │
//	     └──────────────┬─────────────────────────────┘
//	searches       attempts that a turn has room for, look-ups of names
//	pauses         ports that cannot be served for now
//	atLimit        ports whose clients wait for the end of another one
//	requests       what other goroutines ask for
//	poller, turn   what has happened, and when
//
// All of it is touched by the loop's goroutine alone, so none of it has a lock. Others speak to it through [reactor.Requests.Do].
type loop struct {
	number   int          // of the loop
	draining *atomic.Bool // of the engine: the loop ends once it is idle

	turn      reactor.Turn
	poller    *reactor.Poller
	ring      *ring.Ring // nil: the engine has none
	requests  reactor.Requests
	searches  reactor.Searches
	pauses    reactor.Pauses
	atLimit   reactor.Pauses
	conns     relay.Conns
	backlog   relay.Backlog
	relays    relay.Relays
	dialler   dialler
	listeners listeners
	sessions  datagrams.Sessions

	yielded   time.Duration // when it last parked, or let others run
	heartbeat reactor.Heartbeat
	turns     reactor.TurnTimes
}

// What events are about, beside connections and TCP ports.
const (
	asking    = listening + 1 + iota // a UDP port has datagrams of clients
	answering                        // the endpoint of a session has sent some
)

// newLoop makes a loop of an engine. It turns once run is called. mayBlock is what [reactor.NewPoller] says.
func newLoop(number int, base *engine.Base, draining *atomic.Bool, mayBlock bool) (*loop, error) {
	p, err := reactor.NewPoller(mayBlock)
	if err != nil {
		return nil, err
	}
	return assemble(&loop{number: number, draining: draining, poller: p}, base), nil
}

// ringSize is how many entries the ring of a loop holds.
const ringSize = 512

// newRingLoop makes a loop whose small messages pass through a ring.
func newRingLoop(number int, base *engine.Base, draining *atomic.Bool, mayBlock bool) (*loop, error) {
	r, err := ring.New(ringSize)
	if err != nil {
		return nil, err
	}
	p, err := reactor.NewRingPoller(r, mayBlock)
	if err != nil {
		r.Close()
		return nil, err
	}
	l := assemble(&loop{number: number, draining: draining, poller: p, ring: r}, base)
	if l.relays.Buffers, err = relay.NewBuffers(r); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// assemble gives each part of l those below it.
func assemble(l *loop, base *engine.Base) *loop {
	l.turn = reactor.Turn{Clock: monotonic.Now, Now: monotonic.Now()}
	l.requests = reactor.Requests{Poller: l.poller}
	l.searches = reactor.Searches{Engine: base, Turn: &l.turn, Requests: &l.requests}
	l.pauses = reactor.Pauses{Poller: l.poller, Turn: &l.turn}
	l.atLimit = reactor.Pauses{Poller: l.poller, Turn: &l.turn}
	l.conns.Init(base, &l.turn)
	l.backlog = relay.Backlog{Turn: &l.turn}
	l.relays = relay.Relays{Engine: base, Turn: &l.turn, Poller: l.poller, Requests: &l.requests, Conns: &l.conns, Backlog: &l.backlog, Pipes: relay.Pipes{Budget: base.Budget}}
	l.dialler = dialler{engine: base, turn: &l.turn, poller: l.poller, requests: &l.requests, searches: &l.searches, conns: &l.conns, relays: &l.relays,
		races: tcp.RaceConfig{Limits: &base.Cfg, Resolver: base.Resolver, MayAttempt: l.searches.MayAttempt}, ongoing: make(map[int32]*search)}
	l.listeners = listeners{engine: base, turn: &l.turn, poller: l.poller, requests: &l.requests, pauses: &l.pauses, atLimit: &l.atLimit, own: &l.dialler}
	l.sessions = datagrams.Sessions{Engine: base, Turn: &l.turn, Poller: l.poller, Requests: &l.requests, Pauses: &l.pauses, Searches: &l.searches,
		Asking: asking, Answering: answering}
	return l
}

// run turns until the engine is cut and everything has ended.
func (l *loop) run() {
	if r := l.ring; r != nil {
		runtime.LockOSThread() // the thread ends with the loop
		if err := r.Enable(); err != nil {
			panic(err) // nothing else has enabled it
		}
	}
	defer l.close()
	l.turns.Begin(l.turn.Now)
	for {
		parked := l.wait()
		l.turn.Begin()
		l.turns.Begin(l.turn.Now)
		if parked {
			l.yielded = l.turn.Now
		}
		l.apportion()
		l.dealWithAll()
		l.relays.Proceed()
		for t := range l.searches.Due {
			l.search(t)
		}
		l.sessions.SendReplies()
		l.expire()
		if !l.meetRequests() {
			l.turns.End(monotonic.Now())
			return
		}
	}
}

func (l *loop) close() {
	l.relays.Pipes.Close()
	l.poller.Close()
	if b := l.relays.Buffers; b != nil {
		b.Close()
	}
}

// yieldAfter is how long a loop may be busy without letting the Go scheduler look around.
//
// The runtime asks the kernel what goroutines wait for, and looks at their timers, when a thread of its has nothing to do. When a loop
// parks, it is often the loop's thread that asks. Once it is woken up and always finds something to do, no thread asks, until the
// runtime's monitor interferes after 10 ms: so long a change in the registry would not be seen. Yielding wakes up a thread that
// takes over, which is why it is not done in each turn. Nor while connections are unfinished: the loop comes back on another thread, and bulk
// that is moved from one processor to the other every 4 ms costs a seventh more.
const yieldAfter = 4 * time.Millisecond

// yield lets the scheduler look around if it has not done so for long.
func (l *loop) yield() {
	if l.turn.Now-l.yielded >= yieldAfter {
		l.yielded = l.turn.Now
		runtime.Gosched()
	}
}

// wait ends a turn, and returns when something has happened; it reports whether it had to park. It does not wait while there is
// something left to do. With a ring, the kernel sends what the turn has added to it in the wait: that is no part of the turn's time.
func (l *loop) wait() (parked bool) {
	l.turns.End(monotonic.Now())
	if l.backlog.Waiting()+l.searches.Waiting() > 0 {
		l.poller.Poll()
		return false
	}
	if l.ring == nil { // else the goroutine is locked to its thread, and to yield would cost two switches of threads
		l.yield()
	}
	due := l.nextDue()
	if l.requests.Left() || due <= l.turn.Now {
		l.poller.Poll()
		return false
	}
	return l.poller.Wait(l.turn.Now, due)
}

// nextDue is when the loop has something to do even if nothing happens.
func (l *loop) nextDue() time.Duration {
	return min(l.conns.Due(), l.sessions.Due(), l.backlog.ResumesAt(), l.pauses.Due(), l.atLimit.Due())
}

// apportion sets how much each may have of the turn that begins.
func (l *loop) apportion() {
	ports := 0
	events := l.poller.Events()
	for i := range events {
		if reactor.TokenOf(&events[i]).Kind == listening {
			ports++
		}
	}
	l.listeners.accepts = acceptsFor(ports)
	l.relays.Apportion()
	l.sessions.BeginTurn()
}

// dealWithAll deals with what has happened in a turn: first with the events that cost little, then with the others.
func (l *loop) dealWithAll() {
	completions := l.poller.Completions()
	for i := range completions {
		l.relays.Completed(reactor.TokenOfData(completions[i].Data), &completions[i])
	}
	events := l.poller.Events()
	costly, bulk := 0, l.backlog.Waiting() > 0
	for i := range events {
		if ev := &events[i]; l.isCostly(ev) {
			events[costly] = *ev
			costly++
			bulk = bulk || reactor.TokenOf(ev).Kind != listening
		} else {
			l.deal(ev)
		}
	}
	if bulk {
		l.poller.Submit() // what small messages have added to the ring does not wait for it
	}
	for i := range costly {
		if c := l.carried(&events[i]); c != nil && l.turn.Late() {
			l.relays.Postpone(c, reactor.TokenOf(&events[i]).Kind, events[i].Events)
		} else {
			l.deal(&events[i])
		}
	}
}

// isCostly reports whether an event is about a new client, or about a connection that carries in bulk or has stalled.
func (l *loop) isCostly(ev *unix.EpollEvent) bool {
	switch reactor.TokenOf(ev).Kind {
	case listening:
		return true
	case relay.ClientSide, relay.BackendSide:
		c := l.carried(ev)
		return c == nil || c.IsBusy()
	}
	return false
}

// carried returns the connection that an event is about. It returns nil if the event is about something else, or if the
// connection still looks for an endpoint.
func (l *loop) carried(ev *unix.EpollEvent) *relay.Conn {
	t := reactor.TokenOf(ev)
	if t.Kind != relay.ClientSide && t.Kind != relay.BackendSide {
		return nil
	}
	if c := l.conns.At(t.Index, t.Generation); c != nil && c.IsRelayed() {
		return c
	}
	return nil
}

// deal deals with one event, unless it is about something that has ended.
func (l *loop) deal(ev *unix.EpollEvent) {
	t := reactor.TokenOf(ev)
	switch t.Kind {
	case reactor.Waker:
		l.poller.Drain()
	case listening:
		if p := l.listeners.all.At(t.Index, t.Generation); p != nil {
			l.listeners.accept(*p)
		}
	case relay.ClientSide:
		switch c := l.conns.At(t.Index, t.Generation); {
		case c == nil:
		case c.Phase() == relay.AwaitingHeader:
			l.dialler.onHeader(c, ev.Events)
		default:
			l.relays.OnEvent(c, t.Kind, ev.Events)
		}
	case relay.BackendSide:
		if c := l.conns.At(t.Index, t.Generation); c != nil {
			if c.Phase() == relay.Dialling {
				l.dialler.progress(c, ev.Events)
			} else {
				l.relays.OnEvent(c, t.Kind, ev.Events)
			}
		}
	case asking:
		l.sessions.Asked(t)
	case answering:
		l.sessions.Answered(t)
	}
}

// search goes on with a search that an earlier turn had no room for.
func (l *loop) search(t reactor.Token) {
	if t.Kind == answering {
		l.sessions.Search(t)
	} else if c := l.conns.At(t.Index, t.Generation); c != nil {
		l.dialler.resume(c)
	}
}

// looksATurn is how many timers may end in one turn. A look takes a few system calls, 20 us when it ends
// a connection. The rest is looked at in the next turns, with events dealt with in between.
const looksATurn = 64

// expire looks at the connections, sessions and ports whose time has come.
func (l *loop) expire() {
	for n := range looksATurn {
		if n >= reactor.LeastATurn && l.turn.Late() {
			break
		}
		c, isDue := l.conns.Next()
		if c == nil {
			break
		}
		switch {
		case !isDue:
		case c.Phase() == relay.AwaitingHeader:
			l.dialler.rejectHeader(c, 0, nil)
		case c.Phase() == relay.Dialling:
			l.dialler.advance(c)
		default:
			l.relays.Look(c)
		}
	}
	l.sessions.Sweep()
	l.backlog.Resume()
	l.pauses.Resume()
	l.atLimit.Resume()
}

// meetRequests does what others ask for, and reports whether the loop is to go on.
func (l *loop) meetRequests() bool {
	l.requests.Meet(&l.turn)
	return !l.draining.Load() || !l.isIdle() || !l.requests.Close()
}

// isIdle reports whether the loop has nothing left to carry.
func (l *loop) isIdle() bool {
	return l.conns.Used()+l.listeners.all.Used() == 0 && l.sessions.AreNone()
}

// endSessions ends all UDP sessions, a few in each step. No new ones come any more.
func (l *loop) endSessions(from int) {
	if next := l.sessions.EndAll(from); next >= 0 {
		l.requests.Do(func() { l.endSessions(next) })
	}
}

// endAll ends all connections, a few in each step. No new ones come any more, and none moves to another loop.
func (l *loop) endAll(from int) {
	l.relays.BulkTo = nil
	conns, next := l.conns.Some(from, reactor.PlacesAStep)
	for c := range conns {
		l.end(c, traffic.Shutdown)
	}
	if next >= 0 {
		l.requests.Do(func() { l.endAll(next) })
	}
}

// stands returns an error if the loop stands still. Any goroutine may call it.
func (l *loop) stands() error {
	if !l.heartbeat.IsLost() {
		return nil
	}
	if since := l.turns.Present(); since > 0 {
		return fmt.Errorf("event loop %d stands still: its present turn has lasted %v", l.number, since.Round(time.Second))
	}
	return fmt.Errorf("event loop %d stands still: it waits, and does not wake up", l.number)
}
