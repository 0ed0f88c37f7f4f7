// Package news tells clients that wait for an endpoint when to look again.
package news

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A Room has the news of everything that clients may wait for. Few things have such clients, so the others take no room. The zero value is
// ready, and any goroutine may call the methods.
type Room[K comparable] struct {
	awaited atomic.Int64 // how many are in of, so that a change of others takes no lock

	mu sync.Mutex // guards the field below
	of map[K]*news
}

// News ends when it is told.
type news struct {
	context.Context
	tell  context.CancelFunc
	heard int  // clients that wait for it
	soon  bool // it is told after a delay
}

// Of returns a context that ends with the next news of something. Who looks for an endpoint after the call, finds none, and then waits for the
// end of the context misses nothing.
func (r *Room[K]) Of(of K) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.of[of]
	if !ok {
		if r.of == nil {
			r.of = make(map[K]*news)
		}
		n = new(news)
		n.Context, n.tell = context.WithCancel(context.Background())
		r.of[of] = n
		r.awaited.Add(1)
	}
	n.heard++
	return n
}

// Tell has clients that wait look again.
func (r *Room[K]) Tell(of K) {
	if r.awaited.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n, ok := r.of[of]; ok {
		delete(r.of, of)
		r.awaited.Add(-1)
		n.tell()
	}
}

// How long TellSoon waits, by how many clients look again then: so they take about a quarter of a processor. Those who have waited for long enough
// count, too, so it is bounded: a client may wait for as little as 50 ms.
const (
	Delay    = time.Millisecond // at least
	delayFor = 5 * time.Microsecond
	maxDelay = 25 * time.Millisecond
)

// TellSoon is Tell after [Delay] or longer, for news which may come thousands of times a second, to many clients of whom one is served.
func (r *Room[K]) TellSoon(of K) {
	if r.awaited.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n, ok := r.of[of]; ok && !n.soon {
		n.soon = true
		time.AfterFunc(min(max(Delay, time.Duration(n.heard)*delayFor), maxDelay), func() { r.Tell(of) })
	}
}
