package epoll

import (
	"context"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// Engine is the engine for Linux: the same promises as package portable, kept with far fewer system calls,
// hand-overs between goroutines, and memory. A few loops carry all connections; none has a goroutine
// or a buffer of its own. A port belongs to one loop, which accepts its TCP clients, and hands some over to the
// others; its UDP clients stay there.
type Engine struct {
	engine.Base
	loopCount int
	draining  atomic.Bool
	drained   chan struct{}           // closed once drain was called
	loopsNow  atomic.Pointer[[]*loop] // loops, for those who must not wait for mu

	mu    sync.Mutex // guards the fields below
	loops []*loop    // does not change once the first port is open
	turn  int        // which loop gets the next port
}

// New makes an engine that has no port open yet. Its loops start with the first port.
func New(cfg engine.Config, own *admit.OwnPorts) *Engine {
	e := &Engine{loopCount: loopsFor(min(runtime.NumCPU(), runtime.GOMAXPROCS(0))), drained: make(chan struct{})}
	e.Init(cfg, own)
	return e
}

// loopsFor tells how many loops there are for so many processors. On two processors one loop carries a
// connection for a tenth less than two do, and nearly as many of them: it finds more to do each time it is woken up, and clients
// and endpoints of the same machine want a processor as well (docs/performance.md). More than eight were not tried.
func loopsFor(processors int) int { return min(max(1, processors/2), 8) }

// loopFor returns the loop for one more port. The first port starts the loops.
func (e *Engine) loopFor() (*loop, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loops == nil {
		var loops []*loop
		for number := range e.loopCount {
			l, err := newLoop(e, number)
			if err != nil {
				for _, l := range loops {
					l.close()
				}
				return nil, err
			}
			loops = append(loops, l)
		}
		e.loops = loops
		e.loopsNow.Store(&loops)
		for _, l := range loops {
			e.Work.Go(l.run)
		}
		e.Work.Go(func() { e.beatUntilDrained(loops) })
	}
	l := e.loops[e.turn%len(e.loops)]
	e.turn++
	return l, nil
}

// slack is how many connections more than another a loop may have before it hands clients over to that.
const slack = 2

// lightest returns the loop for one more client of a port of l: l itself, unless another has clearly less
// to carry.
func (e *Engine) lightest(l *loop) *loop {
	least := l.load.Load() - slack
	for _, other := range e.loops {
		if n := other.load.Load(); n < least {
			l, least = other, n
		}
	}
	return l
}

// Listen opens the socket of one port. It fails when the port is taken, or no descriptor is left for a listener.
func (e *Engine) Listen(id registry.NodePort, owner *atomic.Pointer[engine.Claim]) (engine.Socket, error) {
	return e.ListenBy(id, owner, e.listenTCP, e.listenUDP)
}

// resolve waits for the name of an endpoint beside the loops, for so long at most, and calls then with its addresses.
func (e *Engine) resolve(protocol registry.Protocol, of *balance.Endpoint, patience time.Duration, then func([]netip.AddrPort, error)) {
	e.Work.Go(func() {
		ctx, cancel := context.WithTimeout(e.Ctx, patience)
		defer cancel()
		then(e.Resolver.Resolve(ctx, protocol, of.Addr))
	})
}

// Drain lets the loops end when they have nothing left to carry, and cuts what there is when ctx ends.
func (e *Engine) Drain(ctx context.Context) {
	e.draining.Store(true)
	close(e.drained)
	e.mu.Lock()
	defer e.mu.Unlock() // every socket has been closed: nobody needs it
	for _, l := range e.loops {
		l.do(func() {}) // it has to look up
	}
	stop := context.AfterFunc(ctx, func() {
		e.Cut()
		for _, l := range e.loops {
			l.do(func() { l.endAll(0) })
		}
	})
	defer stop()
	e.Work.Wait()
	e.Cut()
	e.Resolver.Close()
}

// endsAtOnce is how many connections, or places of UDP sessions, one step looks through to end them. It takes 20 us to end one.
const endsAtOnce = 64

// endAll ends all connections, a few in each step. No new ones come any more.
func (l *loop) endAll(from int) {
	conns, next := l.conns.some(from, endsAtOnce)
	for c := range conns {
		l.end(c, traffic.Shutdown)
	}
	if next >= 0 {
		l.do(func() { l.endAll(next) })
	}
}

// watchTenures has c ended when its endpoint or its service is removed, where that is what removal means.
func (l *loop) watchLifetimes(c *conn) {
	if !l.engine.Cfg.OnRemoval.Close {
		return
	}
	index, generation := c.index, c.generation
	for _, t := range []*balance.Lifetime{c.record.Claim.Lifetime, &c.record.Endpoint.Record().Lifetime} {
		c.lifetimes = append(c.lifetimes, context.AfterFunc(t.Context(), func() {
			l.do(func() {
				if c := l.conns.at(index, generation); c != nil {
					l.end(c, balance.ReasonOf(t.Context()))
				}
			})
		}))
	}
}

func (l *loop) forgetLifetimes(c *conn) {
	for _, stop := range c.lifetimes {
		stop()
	}
	c.lifetimes = nil
}
