package faults

import (
	"context"
	"math/rand/v2"
	"time"

	"kubeproxy/scripts/internal/try"
)

func init() {
	all = append(all,
		Fault{Name: "kill", About: "kill -9 of one member or all, and a restart", small: true, inject: killMembers},
		Fault{Name: "kill-leader", About: "kill -9 of the leader, and a restart", members: 3, inject: killLeader},
		Fault{Name: "pause", About: "SIGSTOP of one member or all: connections stay open, and no request is answered",
			Silent: true, Knob: "ProbePeriod", small: true, inject: pauseMembers},
		Fault{Name: "pause-proxy", About: "SIGSTOP of the proxy under test while the registry changes", small: true, inject: pauseProxy},
	)
}

// killMembers is a power cut, an operator's kill -9, the kernel's choice when memory runs out. What was
// written is on disk, what was being written may or may not be, and every connection is reset. It
// usually strikes one member, sometimes all.
func killMembers(ctx context.Context, c Target, r *rand.Rand) error {
	struck := c.some(r)
	down := between(r, 0, 1500*time.Millisecond)
	c.Logf("kill %s, down for %v", names(struck), down)
	for _, m := range struck {
		m.Kill()
	}
	if err := sleep(ctx, down); err != nil {
		return err
	}
	return c.Start(ctx)
}

// killLeader is a kill that the others must notice before they can go on: during the election etcd answers no linearizable read.
func killLeader(ctx context.Context, c Target, r *rand.Rand) (err error) {
	defer try.Catch(&err)
	m := try.Get(c.Leader(ctx))
	down := between(r, 0, 2*time.Second)
	c.Logf("kill the leader %s, down for %v", m.Name, down)
	m.Kill()
	try.Do(sleep(ctx, down))
	return c.Start(ctx)
}

// pauseMembers is a machine that swaps, a frozen container, a stalled disk, a virtual machine that is moved:
// the kernel acknowledges what arrives, and the process reads none of it. No connection ends.
func pauseMembers(ctx context.Context, c Target, r *rand.Rand) error {
	struck := c.some(r)
	length := between(r, 500*time.Millisecond, 5*time.Second)
	c.Logf("pause %s for %v", names(struck), length)
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
	return c.AwaitAnswers(ctx)
}

// pauseProxy is the same on the other side: the proxy wakes up with all its timers overdue, and what
// etcd has said meanwhile waits in its sockets.
func pauseProxy(ctx context.Context, c Target, r *rand.Rand) error {
	length, changes := between(r, 200*time.Millisecond, 3*time.Second), r.IntN(40)
	c.Logf("pause the proxy for %v and %d changes", length, changes)
	c.PauseNode()
	defer c.ResumeNode()
	err := sleep(ctx, length)
	if err == nil {
		err = c.Write(ctx, changes)
	}
	return err
}
