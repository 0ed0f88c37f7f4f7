package main

import (
	"sync"
	"time"
)

// Stalls measure for how long the machine gave this process no time, by how late a timer is. They explain a late recovery.
type stalls struct {
	mu          sync.Mutex // guards the fields below
	since, most time.Duration
}

// measure begins, and returns what ends it.
func (s *stalls) measure() (stop func()) {
	const step = 5 * time.Millisecond
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			asleep := time.Now()
			select {
			case <-quit:
				return
			case <-time.After(step):
			}
			late := time.Since(asleep) - step
			s.mu.Lock()
			s.since, s.most = max(s.since, late), max(s.most, late)
			s.mu.Unlock()
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// worst is the longest stall since it was asked for last.
func (s *stalls) worst() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.since
	s.since = 0
	return w
}

// ever is the longest of all.
func (s *stalls) ever() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}
