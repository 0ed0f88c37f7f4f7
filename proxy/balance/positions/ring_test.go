package positions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// hashes are those of n positions.
func hashes(n int) (hs []uint64) {
	for i := range n {
		hs = append(hs, Mix(uint64(i)))
	}
	return hs
}

// The index must not change what a search through all points would find.
func TestAClientBelongsToTheFirstPointAtOrAfterItsHash(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 3, 10, 1000, 1025, 70000, 200000} {
		r := NewRing(hashes(n), nil)
		if !slices.IsSorted(r.points) {
			t.Fatalf("%d positions: the points are not sorted", n)
		}
		for range 2000 {
			client := random.Uint64()
			want, _ := slices.BinarySearch(r.points, client&^(1<<positionBits-1))
			if got := r.Find(client); got != want {
				t.Fatalf("%d positions: client %x belongs to point %d; want %d", n, client, got, want)
			}
		}
		for _, client := range []uint64{0, 1<<64 - 1} {
			if at := r.At(r.Find(client)); at < 0 || at >= n {
				t.Errorf("%d positions: client %x is given position %d", n, client, at)
			}
		}
		if len(r.points) > max(maxPoints, n) {
			t.Errorf("%d positions have %d points", n, len(r.points))
		}
	}
}

func BenchmarkNewRing(b *testing.B) {
	for _, n := range []int{10, 1000, 100000} {
		hs := hashes(n)
		b.Run(fmt.Sprint("positions=", n), func(b *testing.B) {
			for b.Loop() {
				NewRing(hs, nil)
			}
		})
	}
}

// Weights give clients in proportion, and one that changes moves only clients to or from its position.
func TestWeightsOnARing(t *testing.T) {
	const clients = 50_000
	random := rand.New(rand.NewPCG(11, 12))
	hs := hashes(4)
	before, after := NewRing(hs, []int{1, 2, 0, 1}), NewRing(hs, []int{1, 2, 0, 3})
	times := make([]int, len(hs))
	for range clients {
		client := random.Uint64()
		was, is := before.At(before.Find(client)), after.At(after.Find(client))
		times[is]++
		if was != is && is != 3 {
			t.Fatalf("a client moved from position %d to %d", was, is)
		}
	}
	for i, w := range []int{1, 2, 0, 3} {
		if want := clients * w / 6; times[i] < want*8/10 || times[i] > want*12/10 {
			t.Errorf("position %d has %d clients; want about %d", i, times[i], want)
		}
	}
}
