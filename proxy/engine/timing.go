package engine

import "time"

// Stagger is how long an endpoint may be silent before another is tried beside it.
const Stagger = 250 * time.Millisecond

// How long accepting pauses when it fails: at first only for a moment, since most often a client is
// just about to leave.
const (
	FirstPause = 5 * time.Millisecond
	LastPause  = time.Second
)
