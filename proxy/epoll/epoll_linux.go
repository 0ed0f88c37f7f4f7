package epoll

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/relay"
	"kubeproxy/proxy/epoll/ring"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// Engine is the engine for Linux: the same promises as package portable, kept with far fewer system calls,
// hand-overs between goroutines, and memory. A few loops carry all connections; none has a goroutine
// or a buffer of its own. A port belongs to one loop, which accepts its TCP clients, and hands some over to the
// others; its UDP clients stay there.
type Engine struct {
	engine.Base
	draining atomic.Bool
	noMore   atomic.Bool             // loops that have ports have ended
	drained  chan struct{}           // closed once drain was called
	loopsNow atomic.Pointer[[]*loop] // loops, for those who must not wait for mu

	mu        sync.Mutex // guards the fields below
	loopCount int        // of loops that have ports; likewise
	bulkCount int        // of those for bulk; likewise
	ringed    bool       // loops that have ports have a ring; likewise
	loops     []*loop    // first those that have ports; does not change once the first port is open
	turn      int        // which loop gets the next port

	// Guarded as engine.Handover says.
	resume   chan struct{}       // closed to end a rest; nil when there is none
	lendings uint16              // how often a successor was lent connections; it wraps around
	borrowed map[uint64]borrowed // by what the predecessor knows them by
}

// New makes an engine that has no port open yet. Its loops start with the first port.
func New(cfg engine.Config, own *admit.OwnPorts) *Engine {
	e := &Engine{loopCount: loopsFor(processors()), drained: make(chan struct{})}
	e.Init(cfg, own)
	return e
}

// TryRing returns why an engine cannot have rings: the kernel has no io_uring that is new enough, forbids it, or lets this user lock too little
// memory for the rings of all loops (RLIMIT_MEMLOCK).
func TryRing() error { return ring.Try(ringLoopsFor(processors()), ringSize, relay.NewBuffers) }

// NewRing makes an engine whose loops carry small messages by io_uring. It fails as TryRing says. If the rings cannot be made when the first port
// opens, the engine goes on without: another process of this user may have locked the memory meanwhile.
func NewRing(cfg engine.Config, own *admit.OwnPorts) (*Engine, error) {
	if err := TryRing(); err != nil {
		return nil, err
	}
	e := New(cfg, own)
	e.bulkCount = e.loopCount
	e.loopCount, e.ringed = ringLoopsFor(processors()), true
	return e, nil
}

func processors() int { return min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) }

// How many loops there are for so many processors. Clients and endpoints of the same machine want a processor as well, and one loop finds
// more to do each time that it wakes up. So with a ring, one loop on two processors costs a seventh less for a message than two, and carries
// nearly as many. Without, two cost 3 to 7 % more, and carry a fifth more (docs/performance.md). More than eight were not tried. Beside loops
// with a ring there are loops for bulk, as many as without a ring, so small messages do not wait for it.
func loopsFor(processors int) int     { return max(min(processors, 2), ringLoopsFor(processors)) }
func ringLoopsFor(processors int) int { return min(max(1, processors/2), 8) }

// loopFor returns the loop for one more port.
func (e *Engine) loopFor() (*loop, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.startLocked(); err != nil {
		return nil, err
	}
	l := e.loops[e.turn%e.loopCount]
	e.turn++
	return l, nil
}

// startLocked starts the loops, unless they run. If the engine is at rest, so are they.
func (e *Engine) startLocked() error {
	if e.loops != nil {
		return nil
	}
	loops, err := e.newLoopsLocked()
	if err != nil && e.ringed {
		glog.Warningf("the engine is epoll, for the loops of the ring engine cannot be made: %v", err)
		e.loopCount, e.bulkCount, e.ringed = e.bulkCount, 0, false
		loops, err = e.newLoopsLocked()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", engine.ErrNotStarted, err)
	}
	e.loops = loops
	e.loopsNow.Store(&loops)
	e.runLoops(loops[:e.loopCount], loops[e.loopCount:])
	e.Work.Go(func() { e.beatUntilDrained(loops) })
	if e.resume != nil {
		return bringToRest(context.Background(), loops, e.resume)
	}
	return nil
}

// newLoopsLocked makes all loops, or none.
func (e *Engine) newLoopsLocked() (loops []*loop, err error) {
	for number := range e.loopCount + e.bulkCount {
		l, err := e.newLoop(number)
		if err != nil {
			for _, l := range loops {
				l.close()
			}
			return nil, err
		}
		loops = append(loops, l)
	}
	return loops, nil
}

// runLoops has loops run: those with ports share out clients among themselves, and hand bulk to the others, which end after them.
func (e *Engine) runLoops(withPorts, forBulk []*loop) {
	var diallers []*dialler
	for _, l := range withPorts {
		diallers = append(diallers, &l.dialler)
	}
	var bulkTo []*relay.Relays
	for _, l := range forBulk {
		bulkTo = append(bulkTo, &l.relays)
		e.Work.Go(l.run)
	}
	var running sync.WaitGroup
	for _, l := range withPorts {
		l.listeners.diallers, l.relays.BulkTo = diallers, bulkTo
		running.Add(1)
		e.Work.Go(func() {
			defer running.Done()
			l.run()
		})
	}
	e.Work.Go(func() {
		running.Wait()
		e.noMore.Store(true)
		for _, l := range forBulk {
			l.poller.Wake()
		}
	})
}

// newLoop makes a loop: those from loopCount on are for bulk.
func (e *Engine) newLoop(number int) (*loop, error) {
	spare := runtime.GOMAXPROCS(0) - 2 // two are for the rest of the program, while each loop keeps one
	switch {
	case number >= e.loopCount:
		return newLoop(number, &e.Base, &e.noMore, spare >= e.loopCount+e.bulkCount)
	case e.ringed:
		return newRingLoop(number, &e.Base, &e.draining, spare >= e.loopCount)
	}
	return newLoop(number, &e.Base, &e.draining, spare >= e.loopCount)
}

// Listen opens the socket of one port. It fails when the port is taken, or no descriptor is left for a listener.
func (e *Engine) Listen(id registry.ListenerID, owner *atomic.Pointer[engine.Claim], beside ...engine.Socket) (engine.Socket, error) {
	return e.ListenBy(id, owner, e.listenTCP, e.listenUDP, beside...)
}

func (e *Engine) listenTCP(id registry.ListenerID, owner *atomic.Pointer[engine.Claim]) (engine.Socket, error) {
	l, err := e.loopFor()
	if err != nil {
		return nil, err
	}
	return l.listeners.open(id, owner)
}

func (e *Engine) listenUDP(id registry.ListenerID, owner *atomic.Pointer[engine.Claim]) (engine.Socket, error) {
	l, err := e.loopFor()
	if err != nil {
		return nil, err
	}
	return l.sessions.Open(id, owner)
}

// Drain lets the loops end when they have nothing left to carry, and cuts what there is when ctx ends.
func (e *Engine) Drain(ctx context.Context) {
	e.draining.Store(true)
	close(e.drained)
	e.mu.Lock()
	defer e.mu.Unlock() // no socket is opened any more: it is not needed
	for _, l := range e.loops {
		l.poller.Wake() // it has to look whether it is idle
	}
	stop := context.AfterFunc(ctx, func() {
		e.Cut()
		for _, l := range e.loops {
			l.requests.Do(func() { l.endAll(0) })
			l.requests.Do(func() { l.endSessions(0) })
		}
		withPorts := e.loops[:min(len(e.loops), e.loopCount)]
		for _, l := range withPorts {
			l.requests.Call(func() {}) // from now on, none of its connections moves
		}
		for _, l := range e.loops[len(withPorts):] {
			l.requests.Do(func() { l.endAll(0) }) // those that have moved meanwhile
		}
	})
	defer stop()
	e.Work.Wait()
	e.Cut()
	e.Resolver.Close()
}

// beatUntilDrained looks after the heartbeats of all loops until the engine is drained.
func (e *Engine) beatUntilDrained(loops []*loop) {
	tick := time.NewTicker(reactor.BeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-e.drained:
			return
		case <-tick.C:
			for _, l := range loops {
				l.heartbeat.Beat(&l.requests)
			}
		}
	}
}

// running returns the loops, without a lock: none before the first port was opened.
func (e *Engine) running() []*loop {
	if loops := e.loopsNow.Load(); loops != nil {
		return *loops
	}
	return nil
}

// Stalled returns an error that names a loop which stands still; nil when all turn.
func (e *Engine) Stalled() error {
	for _, l := range e.running() {
		if err := l.stands(); err != nil {
			return err
		}
	}
	return nil
}

// TurnTimes returns how long the turns of all loops took, present ones included in the longest.
func (e *Engine) TurnTimes() traffic.TurnTimes {
	var sum traffic.TurnTimes
	for _, l := range e.running() {
		l.turns.AddTo(&sum)
	}
	return sum
}
