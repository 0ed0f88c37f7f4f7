// Package monotonic is a clock that only goes forward, whatever happens to the time of day.
package monotonic

import "time"

var start = time.Now()

// Never is later than any time.
const Never = time.Duration(1<<63 - 1)

// Now returns the time since the program started.
func Now() time.Duration { return time.Since(start) }
