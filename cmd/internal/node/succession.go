package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/fdstore"
	"kubeproxy/cmd/internal/metrics"
	"kubeproxy/cmd/internal/operators"
	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// Kinds of items of the process itself. Those of package proxy are below.
const (
	kindOperators uint16 = 0x8000 + iota // an address for operators is open; the body is the address
	kindCounters                         // a part of what was counted, as text
	kindOverrides                        // what operators want in place of the records, as JSON
)

// carrier is what carries clients from one process to the next: the proxier.
type carrier interface {
	Inherit(map[registry.ListenerID]int)
	OnUpdate(registry.Batch)
	takeover.Predecessor
	takeover.Successor
}

// A succession takes over from a predecessor when the first state is there to be applied, and hands over to a successor.
// It stands in the place of the proxier among the handlers.
type succession struct {
	path     string // of the socket; empty: there is neither predecessor nor successor
	carrier  carrier
	server   *operators.Server
	counters *metrics.Metrics
	words    *keeper         // of operators
	kept     *fdstore.Store  // sockets of a process that was killed; nil for none
	tookOver func()          // tells the service manager that this process serves now
	first    func() error    // called before begin applies anything; may be nil
	outgoing sync.Locker     // locked while a successor is given everything, and once it has it; may be nil
	released func()          // called once a successor serves; may be nil
	failed   func(error)     // ends this process
	lacks    func() []string // the sources that this process has not read; nil: it has read all

	afterwards func() // called once a successor serves; may be nil

	ctx        context.Context // of this process's work
	serving    chan struct{}   // closed once this process serves its first state
	handedOver atomic.Bool     // a successor serves
	failures   atomic.Uint64   // of successors that asked for everything, and do not serve

	alone   chan struct{} // closed once the predecessor has ended, or drains, without having handed over
	unwatch func()        // ends the watch that closes alone; may be nil

	mu       sync.Mutex         // guards the fields below
	listener *takeover.Listener // where a successor asks; set before serving is closed, nil if there is none
	stopped  bool               // run has returned, so no listener may be made any more

	beginning   sync.Mutex // locked while begin is at work
	begun, over bool       // OnUpdate's own
}

var errHandedOver = errors.New("a successor serves")

// OnUpdate implements config.Handler.
func (s *succession) OnUpdate(b registry.Batch) {
	switch {
	case s.over:
	case s.begun:
		s.carrier.OnUpdate(b)
	default:
		s.begun = true
		if err := s.begin(b); err != nil {
			s.over = true
			s.failed(err)
			return
		}
		close(s.serving)
	}
}

// runCarrier runs the carrier until ctx ends, and begin is not at work. If the carrier stopped in the midst of a take-over, the predecessor might
// have released all clients already, for this process to serve them.
func (s *succession) runCarrier(ctx context.Context, run func(context.Context) error) error {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() {
		s.beginning.Lock()
		defer s.beginning.Unlock()
		end()
	})()
	return run(longer)
}

// begin applies the first state, and takes over before and after that if there is a predecessor.
func (s *succession) begin(b registry.Batch) error {
	s.beginning.Lock()
	defer s.beginning.Unlock()
	if s.unwatch != nil {
		s.unwatch() // the take-over itself finds out whether there is a predecessor
	}
	if s.first != nil {
		if err := s.first(); err != nil {
			return err
		}
	}
	if s.path == "" {
		s.beginAlone(b)
		return nil
	}
	taken, err := takeover.Take(s.ctx, s.path, adopter{s.carrier, s.server, s.words, s.unwatch == nil || isClosed(s.alone)}, func() { s.carrier.OnUpdate(b) })
	switch {
	case errors.Is(err, takeover.ErrNobody):
		defer taken.Close() // once another process can take over from this one
		s.beginAlone(b)
		s.listen()
		return nil
	case err != nil:
		return fmt.Errorf("-takeover: %w", err)
	}
	s.words.changed() // what the predecessor has not written any more
	defer func() {
		s.listen() // before the predecessor ends: it removes the file if that is still its own
		taken.Close()
	}()
	if s.kept != nil {
		for _, fd := range s.kept.Sockets() {
			sockopt.Close(fd) // they are the predecessor's
		}
	}
	if s.tookOver != nil {
		s.tookOver()
	}
	if err := s.readCounters(taken.Last()); err != nil {
		glog.Warningf("counters begin anew: %v", err)
	}
	return nil
}

// beginAlone applies the first state. It opens the ports with the sockets of a process that was killed, if there are some.
func (s *succession) beginAlone(b registry.Batch) {
	s.words.load()
	if s.kept != nil {
		s.carrier.Inherit(s.kept.Sockets())
	}
	s.carrier.OnUpdate(b)
}

// maxCounters is enough for the series of ten thousand services many times over.
const maxCounters = 256 << 20

// readCounters has the counters go on from those of the predecessor.
func (s *succession) readCounters(items iter.Seq2[takeover.Item, error]) error {
	var text bytes.Buffer
	for it, err := range items {
		switch {
		case err != nil:
			return err
		case it.Kind != kindCounters:
			continue
		case text.Len()+len(it.Body) > maxCounters:
			return fmt.Errorf("the predecessor tells more than %d bytes of them", maxCounters)
		}
		text.Write(it.Body)
	}
	return s.counters.ReadCounters(&text)
}

// listen makes the socket at which a successor asks, unless run has returned.
func (s *succession) listen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	l, err := takeover.Listen(s.path)
	if err != nil {
		glog.Errorf("-takeover: %v; this process cannot be taken over from", err)
		return
	}
	l.Failures, l.Lacks = &s.failures, s.lacks
	s.listener = l
}

// stopListening closes the socket at which a successor asks, also one that would be made later.
func (s *succession) stopListening() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.listener != nil {
		s.listener.Close()
	}
}

// serves reports whether this process serves its first state, and no successor does.
func (s *succession) serves() bool { return isClosed(s.serving) && !s.handedOver.Load() }

// isClosed reports whether c is closed; nothing is ever sent on it.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// An adopter gives the operators' server what is its own.
type adopter struct {
	takeover.Successor
	server  *operators.Server
	words   *keeper
	answers bool // the server runs already, and opens its addresses itself once they are free
}

// AdoptListeners implements [takeover.Successor].
func (a adopter) AdoptListeners(items []takeover.Item) (live bool, err error) {
	a.words.balancer.RestoreOverrides(nil) // those of the file may have ended in the predecessor, which need not have any
	var failed error
	others := slices.DeleteFunc(items, func(it takeover.Item) bool {
		if it.Kind == kindOverrides {
			if err := a.words.restore(it.Body); err != nil {
				glog.Errorf("overrides of the predecessor: %v", err)
			}
			return true
		}
		if it.Kind != kindOperators || len(it.Descriptors) != 1 {
			return false
		}
		if a.answers {
			sockopt.Close(it.Descriptors[0])
			return true
		}
		if err := a.server.Adopt(operators.Handed{Addr: string(it.Body), Descriptor: it.Descriptors[0]}); err != nil && failed == nil {
			failed = err
		}
		return true
	})
	live, err = a.Successor.AdoptListeners(others)
	return live, errors.Join(failed, err)
}

// run waits for a successor until ctx ends, or one serves. From then on the error is errHandedOver. stopServer is called in between:
// two processes must not answer operators at the same time.
func (s *succession) run(ctx context.Context, stopServer func()) error {
	defer s.stopListening()
	select {
	case <-s.serving:
	case <-ctx.Done():
		return nil
	}
	if s.listener == nil {
		return nil
	}
	released := func() {
		s.handedOver.Store(true)
		if s.released != nil {
			s.released()
		}
	}
	handedOver := s.listener.Run(ctx, &giver{Predecessor: s.carrier, server: s.server, words: s.words, outgoing: s.outgoing, released: released}, func() []takeover.Item {
		stopServer()
		return s.counted()
	})
	if handedOver {
		if s.afterwards != nil {
			s.afterwards()
		}
		return errHandedOver
	}
	return nil
}

// counted is what this process has counted, for its successor to go on from.
func (s *succession) counted() (items []takeover.Item) {
	var text bytes.Buffer
	if err := s.counters.WriteCounters(&text); err != nil {
		glog.Warningf("counters cannot be handed over: %v", err)
		return nil
	}
	for part := range slices.Chunk(text.Bytes(), 32<<10) {
		items = append(items, takeover.Item{Kind: kindCounters, Body: part})
	}
	return items
}

// A giver hands over the addresses for operators beside everything else.
type giver struct {
	takeover.Predecessor
	server   *operators.Server
	words    *keeper
	outgoing sync.Locker // may be nil
	locked   bool        // it is
	released func()
	close    func() // of the descriptors of the addresses
}

// Listeners implements [takeover.Predecessor].
func (g *giver) Listeners() ([]takeover.Item, error) {
	if g.outgoing != nil {
		g.outgoing.Lock()
		g.locked = true
	}
	items, err := g.Predecessor.Listeners()
	if err != nil {
		return nil, err
	}
	handed, release, err := g.server.Duplicate()
	if err != nil {
		return nil, err
	}
	g.close = release
	for _, h := range handed {
		items = append(items, takeover.Item{Kind: kindOperators, Body: []byte(h.Addr), Descriptors: []int{h.Descriptor}})
	}
	g.words.give()
	if item, ok, err := g.words.item(); err != nil {
		return nil, err
	} else if ok {
		items = append(items, item)
	}
	return items, nil
}

// Thaw implements [takeover.Predecessor].
func (g *giver) Thaw() {
	g.Predecessor.Thaw()
	g.words.takeBack()
	g.forget()
	if g.locked {
		g.outgoing.Unlock()
		g.locked = false
	}
}

// Release implements [takeover.Predecessor].
func (g *giver) Release() {
	g.released()
	g.Predecessor.Release()
	g.forget()
}

func (g *giver) forget() {
	if g.close != nil {
		g.close()
		g.close = nil
	}
}
