package faults

import (
	"context"
	"math/rand/v2"
	"time"

	"kubeproxy/internal/backoff"
)

// some draws which members a fault strikes: usually one, sometimes all.
func (c Target) some(r *rand.Rand) []*Member {
	i, everyone := r.IntN(len(c.Members)), r.IntN(4) == 0
	if everyone {
		return c.Members
	}
	return c.Members[i : i+1]
}

func names(members []*Member) (text string) {
	for i, m := range members {
		if i > 0 {
			text += ", "
		}
		text += m.Name
	}
	return text
}

// between draws a duration.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return (low + time.Duration(r.Int64N(int64(high-low)))).Round(time.Millisecond)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// sleep waits, and returns an error when ctx ends early.
func sleep(ctx context.Context, d time.Duration) error {
	backoff.Sleep(ctx, d)
	return context.Cause(ctx)
}
