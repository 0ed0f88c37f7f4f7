package traffic

import "time"

// TurnBuckets are the upper bounds of [TurnTimes].
var TurnBuckets = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 5 * time.Second,
}

// TurnTimes says how long the turns of the event loops took. Every client of a loop waits while a turn lasts. An engine
// without loops has none.
type TurnTimes struct {
	Buckets [len(TurnBuckets) + 1]uint64 // turns that took longer than the bound before, and no longer than this one; the last: any longer
	Sum     time.Duration
	Longest time.Duration // the present ones included
}
