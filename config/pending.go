package config

import (
	"slices"
	"time"
)

// Pending is what is wanted, and was not yet given to a handler that should be told.
type Pending struct {
	Services  int
	Endpoints int
	Oldest    time.Time // when the oldest of these changes was received; zero when there are none

	Merged []int64 // the revision of the last update of each source, in the order of the sources
}

// Pending tells how far the slowest queue is behind. What its handlers are being told just now does not
// count. Any goroutine may ask; it takes as long as there are changes pending, and waits while an
// update is being merged.
func (b *Broadcaster) Pending() Pending {
	b.mu.Lock()
	defer b.mu.Unlock()
	var most Pending
	for _, q := range b.queues {
		if p := q.pending(); p.Services+p.Endpoints > most.Services+most.Endpoints {
			most = p
		}
	}
	most.Merged = slices.Clone(b.merged)
	return most
}

func (q *queue) pending() Pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := Pending{Services: len(q.backlog.services.pending), Endpoints: len(q.backlog.endpoints.pending)}
	q.backlog.services.oldest(&p.Oldest)
	q.backlog.endpoints.oldest(&p.Oldest)
	return p
}

// oldest moves t back to the oldest of what is pending; a zero t stands for none yet.
func (d *difference[T]) oldest(t *time.Time) {
	for _, p := range d.pending {
		if t.IsZero() || p.since.Before(*t) {
			*t = p.since
		}
	}
}
