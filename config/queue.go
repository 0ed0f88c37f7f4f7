package config

import (
	"context"
	"slices"
	"sync"
	"time"

	"kubeproxy/registry"
)

// A queue stands between the broadcaster, which must not wait, and handlers, which may be slow.
type queue struct {
	handlers []Handler
	wake     chan struct{} // capacity 1: a full channel means that a wake-up is already due

	mu      sync.Mutex // guards the fields below
	backlog backlog    // empty until the queue is opened
	due     bool       // a batch is, even if it is empty: the first one, or the first that is not partial
	partial bool       // as batches are now
}

func newQueue(hs []Handler) *queue {
	return &queue{handlers: slices.Clone(hs), wake: make(chan struct{}, 1), backlog: newBacklog()}
}

// run gives the handlers one batch after the other until ctx ends. A batch that has begun goes to
// all of the handlers, so that they agree on where they stopped.
func (q *queue) run(ctx context.Context) {
	for {
		select {
		case <-q.wake:
		case <-ctx.Done():
		}
		if ctx.Err() != nil { // asked again: select picks any case that is ready
			return
		}
		batch, ok := q.take()
		if !ok {
			continue // what woke us has been undone
		}
		for _, h := range q.handlers {
			h.OnUpdate(batch)
		}
	}
}

// open begins to tell the handlers, with everything there is. It is called once.
func (q *queue) open(everything outcome, partial bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.backlog.fold(everything)
	q.due, q.partial = true, partial
	q.wakeLocked()
}

// fold adds a step to the backlog of a queue that is open. Handlers see it whole: no batch splits it. That batches are not partial any more
// is told even if nothing else has changed.
func (q *queue) fold(o outcome, partial bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.backlog.fold(o)
	q.due, q.partial = q.due || q.partial && !partial, partial
	if q.due || !q.backlog.empty() {
		q.wakeLocked()
	}
}

func (q *queue) wakeLocked() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns all that the handlers have not been told yet, if there is anything.
func (q *queue) take() (batch registry.Batch, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.backlog.empty() && !q.due {
		return registry.Batch{}, false
	}
	q.due = false
	batch = q.backlog.take()
	batch.Partial = q.partial
	return batch, true
}

// A backlog is the difference between the merged state and what some handlers were given.
type backlog struct {
	revision  int64 // of the newest change
	services  difference[registry.Service]
	endpoints difference[registry.Endpoints]
}

func newBacklog() backlog {
	return backlog{services: newDifference(services), endpoints: newDifference(endpoints)}
}

func (b *backlog) empty() bool { return len(b.services.pending)+len(b.endpoints.pending) == 0 }

// fold adds the changes of the merged state.
func (b *backlog) fold(o outcome) {
	if !o.empty() {
		b.revision = o.revision
	}
	b.services.expect(len(o.services))
	b.endpoints.expect(len(o.endpoints))
	for _, c := range o.services {
		b.services.fold(c, o.received)
	}
	for _, c := range o.endpoints {
		b.endpoints.fold(c, o.received)
	}
}

// take makes a batch of the difference, after which there is none.
func (b *backlog) take() registry.Batch {
	batch := registry.Batch{Revision: b.revision}
	batch.Services = b.services.take(&batch.Oldest)
	batch.Endpoints = b.endpoints.take(&batch.Oldest)
	return batch
}

// A difference is a backlog's part of one kind. An object is pending when its value now is not the
// one that the handlers were given last, and only then. So what they were given of any other object
// need not be kept: the merged state says it.
type difference[T any] struct {
	kind    kind[T]
	pending map[registry.Name]pending[T]
	most    int // the largest number of entries that this pending has had
}

// fewPending is how many entries a map has room for that is cleared and used again.
const fewPending = 8

// A pending change is one that the handlers have not been given yet.
type pending[T any] struct {
	given *T        // what they know; nil if they were never given the object, or were given its removal
	value *T        // the newest; nil for a removal
	since time.Time // when the oldest of the changes folded into this one was received
}

func newDifference[T any](k kind[T]) difference[T] {
	return difference[T]{kind: k, pending: make(map[registry.Name]pending[T])}
}

// expect makes room for n changes where none is pending: to grow a map to a size takes twice the memory of that size.
func (d *difference[T]) expect(n int) {
	if len(d.pending) == 0 && n > fewPending {
		d.pending = make(map[registry.Name]pending[T], n)
		d.most = n
	}
}

// fold replaces the pending change of one object by its newest value. If the handlers have that value already, nothing is pending any
// more. So a removal cancels an addition that is still pending, and is pending itself if the handlers were given the object.
func (d *difference[T]) fold(c change[T], received time.Time) {
	p, ok := d.pending[c.name]
	if !ok {
		p = pending[T]{given: c.before, since: received} // until now the handlers had the newest value
	}
	if d.kind.same(c.after, p.given) {
		delete(d.pending, c.name)
		return
	}
	p.value = c.after
	if received.Before(p.since) {
		p.since = received
	}
	d.pending[c.name] = p
	d.most = max(d.most, len(d.pending))
}

// take returns what is pending, nil for nothing; from now on that counts as given. It moves oldest back
// to the oldest of these changes; a zero oldest stands for none yet.
func (d *difference[T]) take(oldest *time.Time) map[registry.Name]*T {
	if len(d.pending) == 0 {
		return nil
	}
	batch := make(map[registry.Name]*T, len(d.pending))
	for name, p := range d.pending {
		batch[name] = p.value
		if oldest.IsZero() || p.since.Before(*oldest) {
			*oldest = p.since
		}
	}
	// A map keeps its size when it is cleared, and to range over it would go on costing what it did
	// when it was full. So only a small one is used again.
	if d.most <= fewPending {
		clear(d.pending)
	} else {
		d.pending = make(map[registry.Name]pending[T])
	}
	d.most = 0
	return batch
}
