package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// An outage is long: every retry has reached its longest pause, every deadline has passed at least
// once, and the kernels retransmit once in several seconds. What comes to an end then must still
// be noticed at once.

func init() {
	faults = append(faults,
		fault{name: "long-refuse", about: "for up to half a minute etcd cannot be reached, and says so", inject: longRefuse},
		fault{name: "long-kill", about: "for up to half a minute no member runs", inject: longKill},
		fault{name: "long-pause", about: "for up to half a minute no member answers: SIGSTOP",
			silent: true, knob: "ProbePeriod", inject: longPause},
		fault{name: "long-swallow", about: "for up to half a minute bytes vanish both ways, and nobody is told",
			silent: true, knob: "ProbePeriod", inject: longSwallow},
		fault{name: "long-loss", about: "for up to half a minute packets are dropped both ways, with nftables",
			silent: true, knob: "ProbePeriod", able: canLosePackets, inject: longLoss},
	)
}

// longEnough draws how long an outage lasts.
func (c *cluster) longEnough(r *rand.Rand) time.Duration {
	length := between(r, 12*time.Second, 30*time.Second)
	c.stage.logf("for %v", length)
	return length
}

func longRefuse(ctx context.Context, c *cluster, r *rand.Rand) error {
	length := c.longEnough(r)
	c.each((*faultProxy).refuse)
	return firstError(sleep(ctx, length), c.restore())
}

func longKill(ctx context.Context, c *cluster, r *rand.Rand) error {
	length := c.longEnough(r)
	c.kill()
	return firstError(sleep(ctx, length), c.start(context.WithoutCancel(ctx)))
}

func longPause(ctx context.Context, c *cluster, r *rand.Rand) error {
	length := c.longEnough(r)
	for _, m := range c.members {
		m.Pause()
		defer m.Resume()
	}
	err := sleep(ctx, length)
	for _, m := range c.members {
		m.Resume()
	}
	return firstError(err, c.answers(ctx))
}

func longSwallow(ctx context.Context, c *cluster, r *rand.Rand) error {
	length := c.longEnough(r)
	c.each(func(b *faultProxy) {
		b.setNew(deaf)
		b.set(all, deaf)
	})
	return firstError(sleep(ctx, length), c.restore())
}

func longLoss(ctx context.Context, c *cluster, r *rand.Rand) error {
	length := c.longEnough(r)
	var matches []string
	for _, m := range c.members {
		matches = append(matches, packetsTo(m.faultProxy.addr), packetsFrom(m.faultProxy.addr))
	}
	return c.losing(ctx, r, length, matches)
}
