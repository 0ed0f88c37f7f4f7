package positions

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestAnIndexAgreesWithItsModel: each position that was set is either ready or ejected, and the ones asked for are found.
func TestAnIndexAgreesWithItsModel(t *testing.T) {
	const n, most = 200, 16
	random := rand.New(rand.NewPCG(1, 2))
	x, model := NewReadiness(n), make(map[int]time.Duration) // 0: ready
	now := time.Duration(1)
	for range 20_000 {
		switch at := random.IntN(n); random.IntN(4) {
		case 0:
			x.Set(at, 0)
			model[at] = 0
		case 1, 2:
			due := now + time.Duration(1+random.IntN(1_000_000))*1000 + time.Duration(at) // no two are due together
			x.Set(at, due)
			model[at] = due
		case 3:
			now += time.Duration(random.IntN(20_000_000))
			for range n/maxReadmitted + 1 {
				x.Readmit(now)
			}
			for at, due := range model {
				if due <= now {
					model[at] = 0
				}
			}
		}
		from := random.IntN(n)
		ready, distance, skipped, soonest := -1, n, random.IntN(n), -1
		for at, due := range model {
			if d := (at - from + n) % n; due == 0 && d < distance {
				ready, distance = at, d
			}
			if due != 0 && at != skipped && (soonest < 0 || due < model[soonest]) {
				soonest = at
			}
			if isEjected := x.ejected.where[at] != 0; isEjected != (due != 0) {
				t.Fatalf("position %d is ejected: %v, due %v", at, isEjected, due)
			}
		}
		if got := x.Next(from); got != ready {
			t.Fatalf("from %d the next that is ready is %d, want %d", from, got, ready)
		}
		if got := x.Soonest(most, func(at int) bool { return at == skipped }); got != soonest {
			t.Fatalf("without %d the first that returns is %d, want %d", skipped, got, soonest)
		}
	}
}

func TestSoonestLooksAtABoundedNumberOfPositions(t *testing.T) {
	x := NewReadiness(100)
	for at := range 100 {
		x.Set(at, time.Duration(1+at))
	}
	looks := 0
	if got := x.Soonest(16, func(int) bool { looks++; return true }); got != -1 || looks != 16 {
		t.Errorf("found %d after %d looks; want none after 16", got, looks)
	}
	if got := x.Soonest(16, func(at int) bool { return at < 3 }); got != 3 {
		t.Errorf("found %d; want 3, as the ones that were skipped are still there", got)
	}
}

func TestABitmapAgreesWithItsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 63, 64, 65, 4096, 4097, 300_000} {
		p, model := newBitmap(n), make(map[int]bool)
		for range 500 {
			i := random.IntN(n)
			if random.IntN(2) == 0 {
				p.add(i)
				model[i] = true
			} else {
				p.remove(i)
				delete(model, i)
			}
			from, want := random.IntN(n), -1
			for at := range model {
				if at >= from && (want < 0 || at < want) {
					want = at
				}
			}
			if got := p.next(from); got != want {
				t.Fatalf("of %d: from %d the next is %d, want %d", n, from, got, want)
			}
		}
	}
}
