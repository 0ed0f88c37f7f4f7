// Package backoff says when something that failed is tried again, and when something that is done again and again is done next,
// so that a fleet which begins at one moment does not go on as one.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Pauses are the waits between attempts. Each is twice the one before, up to Most, less a random part of up to half: when a
// server comes back, its clients should not all call at once. The zero Pauses has pauses of up to a second. One goroutine uses it.
type Pauses struct {
	Most time.Duration // 0: a second
	last time.Duration
}

// first is the longest first pause.
const first = 50 * time.Millisecond

// Next returns the next pause.
func (p *Pauses) Next() time.Duration {
	most := p.Most
	if most == 0 {
		most = time.Second
	}
	p.last = min(max(2*p.last, first), most)
	return p.last/2 + rand.N(p.last/2)
}

// Reset makes the next pause a first one.
func (p *Pauses) Reset() { p.last = 0 }

// Begun reports whether there was a pause since the last Reset.
func (p *Pauses) Begun() bool { return p.last > 0 }

// Vary varies a period by up to 20 %, so that those who do something at one moment do not go on doing so.
func Vary(d time.Duration) time.Duration { return d - d/5 + rand.N(2*d/5+1) }

// Spread returns the first of many periods: anything from a fifth of one to six fifths. Those who began at one moment would
// else all come again at about one moment.
func Spread(d time.Duration) time.Duration { return d/5 + rand.N(d+1) }

// Sleep returns after a time, or when ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
