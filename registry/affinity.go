package registry

import "time"

// An Affinity says whether a client returns to the endpoint that it had.
type Affinity uint8

// The session affinities of the stored formats since v0.8.
const (
	AffinityNone Affinity = iota
	AffinityClientIP
	endOfAffinities // a new affinity stands before it
)

// How long a client is remembered: Kubernetes' default, and the longest time that it accepts.
const (
	defaultAffinityTimeout = 3 * time.Hour
	maxAffinityTimeout     = 24 * time.Hour
)

// String gives the affinity as the records spell it.
func (a Affinity) String() string {
	if a == AffinityClientIP {
		return "ClientIP"
	}
	return "None"
}
