package measure

import (
	"math/bits"
	"time"
)

// A Histogram counts durations in buckets that are at most 1/128 wide of what they hold. Recording
// allocates nothing, so it does not disturb what it measures.
type Histogram struct {
	buckets [fine * 36]uint32 // up to 2^42 ns, more than an hour
	Count   uint64
}

// fine is how many buckets there are from one power of two to the next.
const fine = 128

// bucketOf gives the bucket of a duration. The first ones are a nanosecond wide.
func bucketOf(ns uint64) int {
	if ns < fine {
		return int(ns)
	}
	shift := bits.Len64(ns) - bits.Len64(fine) // how many of its low bits a bucket does not tell apart
	return min(fine*shift+int(ns>>shift), fine*36-1)
}

// middleOf gives the middle of a bucket, in nanoseconds.
func middleOf(bucket int) float64 {
	if bucket < 2*fine {
		return float64(bucket)
	}
	shift := bucket/fine - 1
	return (float64(bucket-fine*shift) + 0.5) * float64(uint64(1)<<shift)
}

// Record counts one duration.
func (h *Histogram) Record(d time.Duration) {
	h.buckets[bucketOf(uint64(max(d, 0)))]++
	h.Count++
}

// Add counts all that the other has counted.
func (h *Histogram) Add(other *Histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.Count += other.Count
}

// Quantile gives the duration in seconds that the share q of all does not exceed; 0 without any.
func (h *Histogram) Quantile(q float64) float64 {
	if h.Count == 0 {
		return 0
	}
	left := uint64(q * float64(h.Count-1))
	for i, n := range h.buckets {
		if uint64(n) > left {
			return middleOf(i) / 1e9
		}
		left -= uint64(n)
	}
	return middleOf(len(h.buckets)-1) / 1e9
}
