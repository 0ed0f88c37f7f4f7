package positions

import (
	"math/rand/v2"
	"testing"
)

func TestTwoPositionsAreDifferentAndEqualToAll(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{1, 2, 3, 10} {
		times := make([]int, n)
		for range 10000 {
			i, j := Two(random.Uint64(), n)
			if i == j && n > 1 {
				t.Fatalf("%d twice of %d", i, n)
			}
			times[i]++
			times[j]++
		}
		for i, got := range times {
			if want := 20000 / n; got < want*8/10 || got > want*12/10 {
				t.Errorf("position %d of %d came %d times; want about %d", i, n, got, want)
			}
		}
	}
}
