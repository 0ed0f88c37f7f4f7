package positions

import "slices"

// Shares give positions turns by their weights. They never change.
//
// Positions lie one after the other on a line, each as long as its weight, and a place on the line belongs to the position that covers it.
// An index finds it: places are in up to twice as many groups as there are positions, and the index has the first position of each
// group. So the cost does not depend on how many positions there are, unless many with small weights share a group.
type Shares struct {
	ends  []uint64 // where each position ends
	total uint64   // the length of the line; 0 if all weights are 0
	group uint64   // places in a group
	first []int32  // of each group: the position at its first place
	step  uint64   // has no divisor in common with total
}

// NewShares returns the shares of positions with these weights.
func NewShares(weights []int) *Shares {
	s := &Shares{ends: make([]uint64, len(weights))}
	for i, w := range weights {
		s.total += uint64(w)
		s.ends[i] = s.total
	}
	if s.total == 0 {
		return s
	}
	s.group = max(1, s.total/uint64(2*len(weights)))
	position := 0
	for place := uint64(0); place < s.total; place += s.group {
		for s.ends[position] <= place {
			position++
		}
		s.first = append(s.first, int32(position))
	}
	// The golden section of the line: multiples of it, around the line, are as far from each other as can be.
	for s.step = s.total*618034/1000000 | 1; divisor(s.step, s.total) != 1; s.step++ {
	}
	return s
}

func divisor(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// AreNone reports whether all weights are 0.
func (s *Shares) AreNone() bool { return s.total == 0 }

// Turn returns the position whose turn it is after n turns. Of as many turns in a row as all weights together, each position has exactly
// as many as its weight, and they are spread evenly among those of the others. Not all weights may be 0.
func (s *Shares) Turn(n uint64) int { return s.at(n % s.total * s.step % s.total) }

// Random returns a position by 32 random bits: each as often as its weight says. Not all weights may be 0.
func (s *Shares) Random(random uint32) int { return s.at(uint64(random) * s.total >> 32) }

// at returns the position at a place.
func (s *Shares) at(place uint64) int {
	i := int(s.first[place/s.group])
	if s.ends[i] > place {
		return i
	}
	last := len(s.ends)
	if next := int(place/s.group) + 1; next < len(s.first) {
		last = int(s.first[next]) + 1
	}
	found, _ := slices.BinarySearch(s.ends[i:last], place+1)
	return i + found
}
