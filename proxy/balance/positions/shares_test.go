package positions

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// In a round of as many turns as all weights together each position has its weight, wherever the round begins.
func TestARoundGivesEachPositionItsWeight(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	cases := [][]int{{1}, {1, 1}, {2, 1}, {5, 1, 1}, {1, 0, 3}, {256, 1}, {0, 0, 1}, {256, 256, 256}}
	for n := range 20 {
		weights := make([]int, 1+n*n)
		for i := range weights {
			weights[i] = random.IntN(257)
		}
		weights[0] = 1
		cases = append(cases, weights)
	}
	for _, weights := range cases {
		s := NewShares(weights)
		total := 0
		for _, w := range weights {
			total += w
		}
		from := random.Uint64N(1 << 40)
		times := make([]int, len(weights))
		for turn := range uint64(total) {
			times[s.Turn(from+turn)]++
		}
		for i, w := range weights {
			if times[i] != w {
				t.Fatalf("%d weights: position %d has %d turns; want %d", len(weights), i, times[i], w)
			}
		}
	}
}

// A heavy position does not have all its turns at once.
func TestTheTurnsOfAPositionAreSpread(t *testing.T) {
	for _, weights := range [][]int{{5, 1, 1}, {10, 5, 5}, {100, 50, 25, 25}, {3, 2, 1}} {
		s, total := NewShares(weights), 0
		for _, w := range weights {
			total += w
		}
		last, longest := make(map[int]int), make(map[int]int)
		for turn := range 3 * total {
			i := s.Turn(uint64(turn))
			if at, ok := last[i]; ok {
				longest[i] = max(longest[i], turn-at)
			}
			last[i] = turn
		}
		for i, w := range weights {
			if even := (total + w - 1) / w; longest[i] > 3*even {
				t.Errorf("%v: position %d waits up to %d turns; evenly it would be %d", weights, i, longest[i], even)
			}
		}
	}
}

func TestRandomPositionsComeAsOftenAsTheirWeights(t *testing.T) {
	const draws = 100_000
	random := rand.New(rand.NewPCG(9, 10))
	weights := []int{10, 0, 1, 100, 25, 64}
	s, times := NewShares(weights), make([]int, len(weights))
	for range draws {
		times[s.Random(random.Uint32())]++
	}
	for i, w := range weights {
		if want := draws * w / 200; times[i] < want*9/10-20 || times[i] > want*11/10+20 {
			t.Errorf("position %d came %d times; want about %d", i, times[i], want)
		}
	}
	if s.Random(1<<32-1) != 5 || s.Random(0) != 0 {
		t.Error("the ends of the line are another's")
	}
}

func TestNoWeightAtAllIsKnown(t *testing.T) {
	if !NewShares([]int{0, 0}).AreNone() || NewShares([]int{0, 1}).AreNone() {
		t.Error("wrong")
	}
}

func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		weights := make([]int, n)
		for i := range weights {
			weights[i] = 1 + i%256
		}
		s := NewShares(weights)
		b.Run(fmt.Sprint("positions=", n), func(b *testing.B) {
			for i := uint64(0); b.Loop(); i++ {
				s.Turn(i)
			}
		})
	}
}
