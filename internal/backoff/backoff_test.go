package backoff_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/backoff"
)

func TestPausesDoubleUpToASecondWithJitter(t *testing.T) {
	var p backoff.Pauses
	for range 2 {
		for _, want := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
			want *= time.Millisecond
			if got := p.Next(); got < want/2 || got > want {
				t.Errorf("pause %v; want between half of %v and that", got, want)
			}
		}
		p.Reset()
	}
}

func TestTheSyncPeriodVariesByAFifth(t *testing.T) {
	low, high := time.Hour, time.Duration(0)
	for range 1000 {
		d := backoff.Vary(30 * time.Second)
		low, high = min(low, d), max(high, d)
	}
	if low < 24*time.Second || low > 26*time.Second || high < 34*time.Second || high > 36*time.Second {
		t.Errorf("between %v and %v; want 24 s to 36 s, and most of that", low, high)
	}
}

func TestTheFirstResyncsOfAFleetAreSpreadOverAPeriod(t *testing.T) {
	const period, nodes = 30 * time.Second, 1000
	tenths := make([]int, 13)
	for range nodes {
		tenths[10*backoff.Spread(period)/period]++
	}
	for i, n := range tenths {
		// A hundred of them are expected in each tenth. That one has less than 40 or more than 160 is a matter of
		// six standard deviations.
		if within := i >= 2 && i < 12; within && (n < 40 || n > 160) || !within && n > 1 {
			t.Errorf("%d of %d resyncs in tenth %d of a period; want all in tenths 2 to 11, evenly: %v", n, nodes, i, tenths)
		}
	}
}

func TestPausesMayGrowFurther(t *testing.T) {
	p := backoff.Pauses{Most: time.Minute}
	var longest time.Duration
	for range 100 {
		if longest = max(longest, p.Next()); !p.Begun() {
			t.Fatal("a pause did not begin")
		}
	}
	if longest < 30*time.Second || longest > time.Minute {
		t.Errorf("the longest pause is %v; want half a minute to one", longest)
	}
	if p.Reset(); p.Begun() || p.Next() > 50*time.Millisecond {
		t.Error("after a reset the pauses do not begin anew")
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
