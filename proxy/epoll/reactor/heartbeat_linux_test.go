package reactor

import (
	"testing"
	"time"
)

// Each turn is counted in the bucket that its time belongs to, and waiting is no part of any.
func TestATurnIsCountedInItsBucket(t *testing.T) {
	var times TurnTimes
	for _, tt := range []struct {
		took   int64
		bucket int
	}{{0, 0}, {100_000, 0}, {100_001, 1}, {20_000_000, 7}, {5_000_000_000, 13}, {5_000_000_001, 14}} {
		before := times.buckets[tt.bucket].Load()
		times.Begin(1000)
		if times.Present() <= 0 {
			t.Error("there is no present turn")
		}
		times.End(1000 + time.Duration(tt.took))
		if times.buckets[tt.bucket].Load() != before+1 || times.Present() != 0 {
			t.Errorf("a turn of %v is not in bucket %d", time.Duration(tt.took), tt.bucket)
		}
	}
}
