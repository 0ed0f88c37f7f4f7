package config

import (
	"context"
	"sync"
	"time"

	"kubeproxy/registry"
)

// A Handler acts on what is wanted. OnUpdate is never called concurrently with itself, as long as the
// handler is added once. It may take its time, and may keep the batch; but it must not change it,
// since the next handler of its queue gets the same.
//
// The first batch of a queue holds everything there is. Its Oldest tells when the oldest of all changes
// was received, those that were overtaken since among them. Only this batch can be empty, and the first one after a partial
// one that is not partial; then its Oldest is zero.
type Handler interface {
	OnUpdate(registry.Batch)
}

// A HandlerFunc is a handler that needs nothing but a function.
type HandlerFunc func(registry.Batch)

// OnUpdate calls f.
func (f HandlerFunc) OnUpdate(b registry.Batch) { f(b) }

// A Broadcaster keeps the merged state, and tells handlers what changes in it. It is fed, and kept
// running, by a [Mux].
type Broadcaster struct {
	mu       sync.Mutex // guards the fields below; held while an update enters the store and all of the queues
	store    store
	complete bool // every source has sent its first SET, or is late: from now on, queues are told
	read     bool // every source has sent its first SET, or never will
	queues   []*queue
	launch   func(*queue) // starts a queue's goroutine; nil unless running
	observe  func(Step)   // nil: nobody wants to know
	listed   map[int]bool // sources, by precedence, that have sent a SET
	merged   []int64      // by precedence: the revision of the last update
}

// NewBroadcaster returns a broadcaster without handlers.
func NewBroadcaster() *Broadcaster {
	return &Broadcaster{store: newStore(), listed: make(map[int]bool)}
}

// Add makes a queue for some handlers, which get each batch one after the other, in this order. It
// can be called at any time: the first batch of a queue holds everything there is. (D8: in v0.4,
// whatever had arrived before a handler was there was lost for it.) Once the mux has stopped,
// nothing is delivered any more.
func (b *Broadcaster) Add(hs ...Handler) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := newQueue(hs)
	b.queues = append(b.queues, q)
	if b.complete {
		q.open(b.store.everything(), !b.read)
	}
	if b.launch != nil {
		b.launch(q)
	}
}

// addSource makes room for a source below those that are there.
func (b *Broadcaster) addSource(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.store.addLayer(name, false)
	b.merged = append(b.merged, 0)
}

// addFallback makes room for what is served while no source can be read, below all sources.
func (b *Broadcaster) addFallback() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.store.addLayer("fallback", true)
	b.merged = append(b.merged, 0)
}

// An ending is what is over from an update on.
type ending struct {
	fallback bool // it is served no more
	silence  bool // every source has sent its first SET, or never will
}

// merge merges one update of one source, and adds what it changes to every queue, in one step with what ends by it. The lock is
// held all the while, so that all queues see the updates of all sources in the same order.
func (b *Broadcaster) merge(precedence int, u registry.Update, e ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.applyLocked(precedence, u)
	if e.fallback {
		o = o.and(b.voidLocked(u.Received, u.Revision))
	}
	b.tellLocked(o, e)
}

// end notes what is over without an update.
func (b *Broadcaster) end(e ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var o outcome
	if e.fallback {
		o = b.voidLocked(time.Now(), b.store.revision)
	}
	b.tellLocked(o, e)
}

// voidLocked takes the fallback, which is below all sources, out of the merged state, as something of that revision does, which was received then.
func (b *Broadcaster) voidLocked(received time.Time, revision int64) outcome {
	return b.applyLocked(len(b.merged)-1, registry.Update{Set: true, Received: received, Revision: revision})
}

func (b *Broadcaster) applyLocked(precedence int, u registry.Update) outcome {
	o := b.store.apply(precedence, u)
	b.merged[precedence] = u.Revision
	listed := b.listed[precedence]
	b.listed[precedence] = listed || u.Set
	if b.observe != nil && b.complete && !o.empty() {
		b.observe(Step{Source: b.store.services.layers[precedence].source, Revision: u.Revision, Corrected: u.Set && listed, outcome: o})
	}
	return o
}

// tellLocked adds a step to every queue. Those that are yet to be opened get everything then.
func (b *Broadcaster) tellLocked(o outcome, e ending) {
	b.read = b.read || e.silence
	if b.complete {
		for _, q := range b.queues {
			q.fold(o, !b.read)
		}
	}
}

// open begins to tell the queues, with everything that has been merged. It is called once.
func (b *Broadcaster) open() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complete = true
	everything := b.store.everything()
	for _, q := range b.queues {
		q.open(everything, !b.read)
	}
}

// run lets the queues deliver until ctx ends, and returns when all of them have stopped.
func (b *Broadcaster) run(ctx context.Context) {
	var running sync.WaitGroup
	launch := func(q *queue) { running.Go(func() { q.run(ctx) }) }

	b.mu.Lock()
	b.launch = launch
	for _, q := range b.queues {
		launch(q)
	}
	b.mu.Unlock()

	<-ctx.Done()
	b.mu.Lock()
	b.launch = nil // under the lock: no Add can start another one while we wait
	b.mu.Unlock()
	running.Wait()
}
