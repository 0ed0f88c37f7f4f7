package admit

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestAPaceIsKeptHoweverManyAsk(t *testing.T) {
	for _, c := range []struct {
		name string
		gap  time.Duration // between two that ask, for ten seconds
		most int           // a second
		want int
	}{
		{"a flood", 10 * time.Microsecond, 5000, 10*5000 + 1000},
		{"no more than may come", time.Second / 5000, 5000, 10 * 5000},
		{"a trickle", time.Second, 5000, 10},
		{"one a second", 100 * time.Millisecond, 1, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, got, began := NewPace(c.most), 0, time.Now()
			for now := time.Duration(0); now < 10*time.Second; now += c.gap {
				if p.AllowN(began.Add(now), 1) {
					got++
				}
			}
			if got < c.want-1 || got > c.want+1 { // tokens are counted in fractions
				t.Errorf("%d; want %d", got, c.want)
			}
		})
	}
}

// Clients that come together after a silence are welcome, and so are those that a process finds waiting when it starts; a
// second crowd has to wait for its time.
func TestAPaceLetsACrowdIn(t *testing.T) {
	const most, crowd = 5000, 1000
	p, began := NewPace(most), time.Now()
	come := func(at time.Duration) int {
		var in atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range crowd {
					if p.AllowN(began.Add(at), 1) {
						in.Add(1)
					}
				}
			})
		}
		all.Wait()
		return int(in.Load())
	}
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, crowd}, {100 * time.Millisecond, crowd / 2}, {time.Minute, crowd}} {
		if got := come(c.after); got != c.want {
			t.Errorf("after %v %d are let in at once; want %d", c.after, got, c.want)
		}
	}
}
