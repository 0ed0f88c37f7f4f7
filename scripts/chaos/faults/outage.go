package faults

import (
	"context"
	"math/rand/v2"
	"time"
)

// An outage is long: every retry has reached its longest pause, every deadline has passed at least once, and the kernel retransmits once in
// several seconds. The proxy must still notice at once when it ends.

func init() {
	all = append(all,
		Fault{Name: "long-refuse", About: "for up to half a minute connections to etcd are refused", inject: longRefuse},
		Fault{Name: "long-kill", About: "for up to half a minute no member runs", inject: longKill},
		Fault{Name: "long-pause", About: "for up to half a minute no member answers: SIGSTOP",
			Silent: true, Knob: "ProbePeriod", inject: longPause},
		Fault{Name: "long-swallow", About: "for up to half a minute bytes are lost both ways, without an error",
			Silent: true, Knob: "ProbePeriod", inject: longSwallow},
		Fault{Name: "long-loss", About: "for up to half a minute packets are dropped both ways, with nftables",
			Silent: true, Knob: "ProbePeriod", able: CanLosePackets, inject: longLoss},
	)
}

// longEnough draws how long an outage lasts.
func (c Target) longEnough(r *rand.Rand) time.Duration {
	length := between(r, 12*time.Second, 30*time.Second)
	c.Logf("for %v", length)
	return length
}

func longRefuse(ctx context.Context, c Target, r *rand.Rand) error {
	length := c.longEnough(r)
	c.EachWay((*Proxy).Refuse)
	return firstError(sleep(ctx, length), c.Restore())
}

func longKill(ctx context.Context, c Target, r *rand.Rand) error {
	length := c.longEnough(r)
	c.Kill()
	return firstError(sleep(ctx, length), c.Start(context.WithoutCancel(ctx)))
}

func longPause(ctx context.Context, c Target, r *rand.Rand) error {
	length := c.longEnough(r)
	for _, m := range c.Members {
		m.Pause()
		defer m.Resume()
	}
	err := sleep(ctx, length)
	for _, m := range c.Members {
		m.Resume()
	}
	return firstError(err, c.AwaitAnswers(ctx))
}

func longSwallow(ctx context.Context, c Target, r *rand.Rand) error {
	length := c.longEnough(r)
	c.EachWay(func(p *Proxy) {
		p.SetNew(Blackhole)
		p.Set(EveryConn, Blackhole)
	})
	return firstError(sleep(ctx, length), c.Restore())
}

func longLoss(ctx context.Context, c Target, r *rand.Rand) error {
	length := c.longEnough(r)
	var matches []string
	for _, m := range c.Members {
		matches = append(matches, PacketsTo(m.Way.Addr), PacketsFrom(m.Way.Addr))
	}
	return c.losing(ctx, r, length, matches)
}
