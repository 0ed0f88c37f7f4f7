package positions

import "math/bits"

// Two returns two of n positions, which differ if n is more than one. random has 64 random bits.
func Two(random uint64, n int) (i, j int) {
	if n < 2 {
		return 0, 0
	}
	i = below(uint32(random), n)
	if j = below(uint32(random>>32), n-1); j >= i {
		j++
	}
	return i, j
}

// below maps 32 random bits to a number below n. What multiplication makes uneven is a share of n/2³².
func below(random uint32, n int) int {
	hi, _ := bits.Mul64(uint64(random)<<32, uint64(n))
	return int(hi)
}
