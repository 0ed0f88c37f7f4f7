package news

import (
	"testing"
	"testing/synctest"
	"time"
)

// Those who have given up count among those who wait. A client that waits for a moment only is not to wait for their sake.
func TestNewsComeSoonHoweverManyHaveWaited(t *testing.T) {
	for _, c := range []struct {
		clients int
		after   time.Duration
	}{{1, Delay}, {1000, 1000 * delayFor}, {100_000, maxDelay}} {
		synctest.Test(t, func(t *testing.T) {
			var r Room[string]
			n := r.Of("web")
			for range c.clients - 1 {
				r.Of("web")
			}
			began := time.Now()
			r.TellSoon("web")
			<-n.Done()
			if got := time.Since(began); got != c.after {
				t.Errorf("with %d clients it is told after %v; want %v", c.clients, got, c.after)
			}
		})
	}
}
