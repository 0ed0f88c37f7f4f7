package etcdsource

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestPausesDoubleUpToASecondWithJitter(t *testing.T) {
	var p pauses
	for range 2 {
		for _, want := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
			want *= time.Millisecond
			if got := p.next(); got < want/2 || got > want {
				t.Errorf("pause %v; want between half of %v and that", got, want)
			}
		}
		p.reset()
	}
}

func TestTheSyncPeriodVariesByAFifth(t *testing.T) {
	low, high := time.Hour, time.Duration(0)
	for range 1000 {
		d := jitter(30 * time.Second)
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
		tenths[10*spread(period)/period]++
	}
	for i, n := range tenths {
		// A hundred of them are expected in each tenth. That one has less than 40 or more than 160 is a matter of
		// six standard deviations.
		if within := i >= 2 && i < 12; within && (n < 40 || n > 160) || !within && n > 1 {
			t.Errorf("%d of %d resyncs in tenth %d of a period; want all in tenths 2 to 11, evenly: %v", n, nodes, i, tenths)
		}
	}
}

func TestAReasonIsWithoutItsFrame(t *testing.T) {
	err := explain(t.Context(), status.Error(codes.Unavailable, "connection refused"))
	if err.Error() != "connection refused" {
		t.Errorf("%q; want it without gRPC's frame", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 0, context.Canceled)
	defer cancel()
	if err := explain(ctx, status.Error(codes.DeadlineExceeded, "x")); !errors.Is(err, context.Canceled) || causeOf(err) != Silent {
		t.Errorf("%v; want the cause", err)
	}
}
