package main

import (
	"context"
	"math/rand/v2"
	"time"

	"kubeproxy/scripts/internal/try"
)

func init() {
	faults = append(faults,
		fault{name: "kill", about: "kill -9 of one member or all, and a restart", small: true, inject: killMembers},
		fault{name: "kill-leader", about: "kill -9 of the leader, and a restart", members: 3, inject: killLeader},
		fault{name: "pause", about: "SIGSTOP of one member or all: connections stay open, and nobody answers",
			silent: true, knob: "ProbePeriod", small: true, inject: pauseMembers},
		fault{name: "pause-proxy", about: "SIGSTOP of the proxy under test while the registry changes", small: true, inject: pauseProxy},
	)
}

// killMembers is a power cut, an operator's kill -9, the kernel's choice when memory runs out. What was
// written is on disk, what was being written may or may not be, and every connection is reset. It
// usually strikes one member, sometimes all.
func killMembers(ctx context.Context, c *cluster, r *rand.Rand) error {
	struck := c.some(r)
	down := between(r, 0, 1500*time.Millisecond)
	c.stage.logf("kill %s, down for %v", names(struck), down)
	for _, m := range struck {
		m.Kill()
	}
	if err := sleep(ctx, down); err != nil {
		return err
	}
	return c.start(ctx)
}

// killLeader is the kill that the others must notice before they can go on: for the length of an
// election etcd answers nobody who wants to know the newest.
func killLeader(ctx context.Context, c *cluster, r *rand.Rand) (err error) {
	defer try.Catch(&err)
	m := try.Get(c.leader(ctx))
	down := between(r, 0, 2*time.Second)
	c.stage.logf("kill the leader %s, down for %v", m.Name, down)
	m.Kill()
	try.Do(sleep(ctx, down))
	return c.start(ctx)
}

// pauseMembers is a machine that swaps, a frozen container, a stalled disk, a virtual machine that is moved:
// the kernel goes on acknowledging what comes, and the process reads none of it. Nobody is told.
func pauseMembers(ctx context.Context, c *cluster, r *rand.Rand) error {
	struck := c.some(r)
	length := between(r, 500*time.Millisecond, 5*time.Second)
	c.stage.logf("pause %s for %v", names(struck), length)
	for _, m := range struck {
		m.Pause()
		defer m.Resume()
	}
	if err := sleep(ctx, length); err != nil {
		return err
	}
	for _, m := range struck {
		m.Resume()
	}
	return c.answers(ctx)
}

// pauseProxy is the same on the other side: the proxy wakes up with all its timers overdue, and what
// etcd has said meanwhile waits in its sockets.
func pauseProxy(ctx context.Context, c *cluster, r *rand.Rand) error {
	length, changes := between(r, 200*time.Millisecond, 3*time.Second), r.IntN(40)
	c.stage.logf("pause the proxy for %v and %d changes", length, changes)
	c.stage.pauseNode()
	defer c.stage.resumeNode()
	err := sleep(ctx, length)
	if err == nil {
		err = c.stage.write(ctx, changes)
	}
	return err
}

// some draws whom a fault strikes: usually one member, sometimes all.
func (c *cluster) some(r *rand.Rand) []*member {
	i, everyone := r.IntN(len(c.members)), r.IntN(4) == 0
	if everyone {
		return c.members
	}
	return c.members[i : i+1]
}

func names(members []*member) (text string) {
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
