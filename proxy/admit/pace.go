package admit

import "golang.org/x/time/rate"

// NewPace returns the token bucket for UDP sessions that begin: n in a second. Strangers can ask for new sessions without
// end. To begin one costs as much as to carry fifty datagrams, on a small node all other clients wait for that, and the
// sender of a datagram can be forged. A limit on the number of sessions bounds the memory only: a full table evicts one
// session for each that begins.
//
// The burst is a fifth of a second's sessions, and there from the beginning, so many clients that come at one moment
// are welcome.
//
// It must be asked with Allow, and not with the time that a loop read at the beginning of its turn. A [rate.Limiter] that
// is asked at one time, at an earlier one and at the first again counts the time between them twice.
func NewPace(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(n), max(1, n/5)) }

// NewPortPace returns the token bucket of one port, which gets four fifths: a flood of one port leaves room for new
// sessions of others.
func NewPortPace(n int) *rate.Limiter { return NewPace(max(1, n-n/5)) }
