package positions

import (
	"math/bits"
	"slices"
)

// A Ring is a circle of hashes (Karger et al., 1997). Each position has points on it, at places that follow from its own hash alone. A
// client belongs to the first point at or after its hash. So nodes that know the same positions agree on each client, and a position
// that leaves moves only its own clients. A ring never changes.
//
// The hashes are spread evenly, so an index of their leading bits finds the point of a client at once: the cost does not depend on
// how many there are. A ring takes 16 bytes for a point, so 1 MB for 65,536.
type Ring struct {
	points []uint64 // sorted: the place on the circle, and in the low positionBits the position
	first  []int32  // by the leading bits of a place: the first point with these bits, or behind them
	shift  int      // how many other bits a place has
}

// A ring has maxEach points for each position, so that shares differ by some 9 % (one standard deviation), as long as that makes no
// more than maxPoints. Beyond 512 positions each has half as many, a quarter, and so on.
const (
	maxEach      = 128
	maxPoints    = 1 << 16
	positionBits = 20
)

// NewRing returns the ring of positions that have these hashes: at least one, and at most 2²⁰. A position has as many times more points
// as its weight says, and none at 0; not all are 0. Without weights all are alike.
func NewRing(hashes []uint64, weights []int) *Ring {
	sum := len(hashes)
	if weights != nil {
		sum = 0
		for _, w := range weights {
			sum += w
		}
	}
	each := maxEach
	for each > 1 && each*sum > maxPoints {
		each /= 2
	}
	points := points(hashes, weights, each)
	n := each * sum
	leading := max(1, bits.Len(uint(n-1)))
	r := &Ring{points: make([]uint64, n), first: make([]int32, 1<<leading+1), shift: 64 - leading}

	// First how many points begin with the same bits, then where these are to stand, and last the points.
	for p := range points {
		r.first[p>>r.shift+1]++
	}
	for i := 1; i < len(r.first); i++ {
		r.first[i] += r.first[i-1]
	}
	next := slices.Clone(r.first)
	for p := range points {
		at := &next[p>>r.shift]
		r.points[*at] = p
		*at++
	}
	for i := range r.points { // which are nearly sorted by now
		for j := i; j > 0 && r.points[j] < r.points[j-1]; j-- {
			r.points[j], r.points[j-1] = r.points[j-1], r.points[j]
		}
	}
	return r
}

// points yields the points of all positions: so many for each unit of weight.
func points(hashes []uint64, weights []int, each int) func(yield func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for position, h := range hashes {
			n := each
			if weights != nil {
				n *= weights[position]
			}
			for k := range n {
				if !yield(Mix(h+uint64(k))&^(1<<positionBits-1) | uint64(position)) {
					return
				}
			}
		}
	}
}

// Find returns the number of the point that a client with this hash belongs to.
func (r *Ring) Find(client uint64) int {
	client &^= 1<<positionBits - 1
	i := int(r.first[client>>r.shift])
	for i < len(r.points) && r.points[i] < client {
		i++
	}
	return i
}

// At returns the position of a point. Points are numbered around the circle: the one after the last is the first.
func (r *Ring) At(i int) int {
	return int(r.points[i%len(r.points)] & (1<<positionBits - 1))
}

// Mix spreads each bit of a hash over all others: the last step of SplitMix64 (Steele, Lea and Flood, 2014). It is constant for ever: nodes of
// different builds have to agree on it.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
