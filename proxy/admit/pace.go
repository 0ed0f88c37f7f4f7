package admit

import "golang.org/x/time/rate"

// NewPace returns the token bucket for new UDP sessions: n in a second, and a burst of n/5 that is full at the start. The source
// of a datagram can be forged, so a stranger can begin any number of sessions. One costs as much CPU as fifty datagrams, which all other
// clients of a small node wait for. A limit on the number of sessions bounds memory only: a full table evicts one session for each new one.
//
// Call Allow, and never AllowN with the time of the loop's turn. Loops read their times at different moments, and a [rate.Limiter] whose
// time goes back counts the time between twice.
func NewPace(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(n), max(1, n/5)) }

// NewPortPace returns the token bucket of one port, which gets four fifths: a flood of one port leaves room for new
// sessions of others.
func NewPortPace(n int) *rate.Limiter { return NewPace(max(1, n-n/5)) }
