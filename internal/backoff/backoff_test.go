package backoff_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/backoff"
)

func TestPausesDoubleUpToTheMostWithJitter(t *testing.T) {
	for _, most := range []time.Duration{0, time.Second, 5 * time.Second} {
		p := backoff.Pauses{Most: most}
		longest := 50 * time.Millisecond
		for range 12 {
			if got := p.Next(); got < longest/2 || got > longest || !p.Begun() {
				t.Errorf("pause of %v; want %v less up to half of it", got, longest)
			}
			longest = min(2*longest, max(most, time.Second))
		}
		if p.Reset(); p.Begun() || p.Next() > 50*time.Millisecond {
			t.Error("after a reset the pauses do not begin anew")
		}
	}
}

func TestPeriodsVary(t *testing.T) {
	for range 100 {
		if d := backoff.Vary(time.Minute); d < 48*time.Second || d > 72*time.Second {
			t.Errorf("a minute varied to %v", d)
		}
		if d := backoff.Spread(time.Minute); d < 12*time.Second || d > 72*time.Second {
			t.Errorf("a minute spread to %v", d)
		}
	}
}

func TestASleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		backoff.Sleep(t.Context(), time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		backoff.Sleep(ctx, time.Hour)
		if d := time.Since(start); d != time.Minute+time.Second {
			t.Errorf("slept %v", d)
		}
	})
}
