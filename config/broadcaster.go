package config

import (
	"context"
	"sync"

	"kubeproxy/registry"
)

// A Handler acts on what is wanted. OnUpdate is never called concurrently with itself, as long as the
// handler is added once. It may take its time, and may keep the batch; but it must not change it,
// since the next handler of its queue gets the same.
//
// Only the first batch can be empty. Its Oldest is then zero.
type Handler interface {
	OnUpdate(registry.Batch)
}

// A HandlerFunc is a handler that needs nothing but a function.
type HandlerFunc func(registry.Batch)

// OnUpdate calls f.
func (f HandlerFunc) OnUpdate(b registry.Batch) { f(b) }

// A Broadcaster tells handlers what changed in the merged state. It is fed, and kept running, by a [Mux].
type Broadcaster struct {
	mu       sync.Mutex // guards the fields below; held while an update enters all of the queues
	complete bool       // every source has sent its first SET: from now on, queues are told
	all      backlog    // that of a queue which never delivered anything: the whole merged state
	queues   []*queue
	launch   func(*queue) // starts a queue's goroutine; nil unless running
}

// NewBroadcaster returns a broadcaster without handlers.
func NewBroadcaster() *Broadcaster { return &Broadcaster{all: newBacklog()} }

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
		q.open(b.all)
	}
	if b.launch != nil {
		b.launch(q)
	}
}

// publish lets the plain changes of one update into every queue. Complete is true from the update on
// that makes the state complete.
func (b *Broadcaster) publish(u registry.Update, complete bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all.fold(u)
	for _, q := range b.queues {
		switch {
		case b.complete:
			q.fold(u)
		case complete:
			q.open(b.all)
		}
	}
	b.complete = complete
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
