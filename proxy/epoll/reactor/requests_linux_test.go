package reactor

import (
	"sync"
	"testing"
	"time"

	"kubeproxy/internal/monotonic"
)

// A loop sleeps as soon as nothing is left, and what is asked for in that moment wakes it up. Each request is met once, those of one goroutine in its order.
func TestWhatManyAskForAtOnceIsMetOnceAndInOrder(t *testing.T) {
	const goroutines, each = 20, 2000
	p, err := NewPoller(true)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	q := Requests{Poller: p}
	turn := Turn{Clock: func() time.Duration { return 0 }}
	var next [goroutines]int
	met := 0
	var all sync.WaitGroup
	for who := range goroutines {
		all.Go(func() {
			for i := range each {
				if !q.Do(func() {
					if met++; next[who] != i {
						t.Errorf("request %d of goroutine %d was met in place of %d", i, who, next[who])
					}
					next[who] = i + 1
				}) {
					t.Error("a loop that has not ended is said to have ended")
				}
			}
		})
	}
	for met < goroutines*each {
		if q.Meet(&turn); !q.Left() && met < goroutines*each {
			p.Wait(monotonic.Now(), monotonic.Never)
			p.Drain()
		}
	}
	all.Wait()
	if q.Do(func() {}); q.Close() || !q.MeetAll() || !q.Close() || !q.Close() {
		t.Error("a loop ends before it has met all requests, or does not end after that")
	}
	if q.Do(func() { t.Error("it was met") }) || q.MeetAll() {
		t.Error("a loop that has ended meets requests, or is said to")
	}
}
