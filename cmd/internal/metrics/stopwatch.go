package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kubeproxy/config"
	"kubeproxy/registry"
)

// A Stopwatch stands around the handlers of one queue, and so knows what they are doing:
//
//	broadcaster.Add(stopwatch.Begin(), proxier, stopwatch.End())
//
// It is made by [New].
type Stopwatch struct {
	apply     prometheus.Histogram // a batch, from the first handler to the end of the last
	latency   prometheus.Histogram // from the receipt of the oldest change in it
	services  prometheus.Counter   // changes that were applied
	endpoints prometheus.Counter

	mu      sync.Mutex // guards the fields below
	began   time.Time  // zero while no batch is being applied
	oldest  time.Time  // of that batch's changes; zero if it has none
	applied time.Time  // when the last batch was
}

// Begin is the handler that comes first.
func (s *Stopwatch) Begin() config.Handler {
	return config.HandlerFunc(func(b registry.Batch) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.began, s.oldest = time.Now(), b.Oldest
	})
}

// End is the handler that comes last.
func (s *Stopwatch) End() config.Handler {
	return config.HandlerFunc(func(b registry.Batch) {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		s.apply.Observe(now.Sub(s.began).Seconds())
		if !b.Oldest.IsZero() {
			s.latency.Observe(now.Sub(b.Oldest).Seconds())
		}
		s.services.Add(float64(len(b.Services)))
		s.endpoints.Add(float64(len(b.Endpoints)))
		s.began, s.oldest, s.applied = time.Time{}, time.Time{}, now
	})
}

// Oldest tells when the oldest of the changes that are being applied was received, zero if there are none.
func (s *Stopwatch) Oldest() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.oldest
}

// lastApplied tells when the last batch was applied, zero if none was.
func (s *Stopwatch) lastApplied() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied
}
