package rotation

import (
	"context"
	"sync"
	"sync/atomic"
)

// A newsroom tells clients that wait for an endpoint when to look again. Few rotations have such clients, so the others take no room for them.
type newsroom struct {
	awaited atomic.Int64 // rotations in of, so that a change of others takes no lock

	mu sync.Mutex // guards the field below
	of map[*Rotation]news
}

// News ends when it is told.
type news struct {
	context.Context
	tell context.CancelFunc
}

// News returns a context that ends with the next change of the endpoints or of their health, and when the service leaves its port. Who looks for an
// endpoint after the call, finds none, and then waits for the end of the context misses nothing.
func (r *Rotation) News() context.Context {
	room := &r.rules.newsroom
	room.mu.Lock()
	defer room.mu.Unlock()
	n, ok := room.of[r]
	if !ok {
		if room.of == nil {
			room.of = make(map[*Rotation]news)
		}
		n.Context, n.tell = context.WithCancel(context.Background())
		room.of[r] = n
		room.awaited.Add(1)
	}
	return n
}

// IsAwaited reports whether clients may wait for news of the rotation.
func (r *Rotation) IsAwaited() bool {
	room := &r.rules.newsroom
	if room.awaited.Load() == 0 { // as nearly always
		return false
	}
	room.mu.Lock()
	defer room.mu.Unlock()
	_, ok := room.of[r]
	return ok
}

// TellNews has clients that wait for an endpoint look again.
func (r *Rotation) TellNews() {
	room := &r.rules.newsroom
	if room.awaited.Load() == 0 {
		return
	}
	room.mu.Lock()
	defer room.mu.Unlock()
	if n, ok := room.of[r]; ok {
		delete(room.of, r)
		room.awaited.Add(-1)
		n.tell()
	}
}
