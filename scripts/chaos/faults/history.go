package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func init() {
	all = append(all,
		Fault{Name: "compact-list", About: "what a paged list reads is compacted between two of its pages", small: true, inject: compactList},
		Fault{Name: "compact-asleep", About: "history is compacted while the proxy is stopped and its watch is behind", small: true, inject: compactAsleep},
		Fault{Name: "defragment", About: "every member rewrites its database, and answers no request meanwhile", inject: defragment},
		Fault{Name: "move-leader", About: "leadership is handed on, several times", members: 3, inject: moveLeader},
	)
}

// compact compacts the history before a revision. It is no error if that was compacted already, or is not there yet because a member
// lags.
func (c Target) compact(ctx context.Context, revision int64) error {
	if revision < 1 {
		return nil
	}
	return c.Do(ctx, "compact", func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Compact(ctx, revision)
		if errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, rpctypes.ErrFutureRev) {
			return nil
		}
		return err
	})
}

// compactList is a busy cluster with a short auto-compaction: pages are read at the revision of the
// first, which is gone when the next one is asked for. The list is made slow, the pages are small,
// and history is forgotten as fast as it is written.
func compactList(ctx context.Context, c Target, r *rand.Rand) error {
	delay := between(r, 5*time.Millisecond, 40*time.Millisecond)
	rounds := 5 + r.IntN(10)
	c.Logf("%d compactions while lists take %v for a page", rounds, delay)
	c.EachWay(func(p *Proxy) {
		p.Slow(delay)
		p.Reset(EveryConn) // the next session begins with a list
	})
	var err error
	for i := 0; i < rounds && err == nil; i++ {
		if err = sleep(ctx, 3*delay); err == nil {
			err = firstError(c.Write(ctx, 1+r.IntN(3)), c.compact(ctx, c.Head()))
		}
	}
	return firstError(err, c.Restore())
}

// compactAsleep is a node that was suspended, or so overloaded that its proxy did not run: when it
// wakes up, what it would go on from is gone. Sometimes its connections have ended as well.
func compactAsleep(ctx context.Context, c Target, r *rand.Rand) error {
	changes, ended := 1+r.IntN(60), r.IntN(2) == 0
	c.Logf("%d changes and a compaction while the proxy sleeps; connections end: %t", changes, ended)
	c.PauseNode()
	defer c.ResumeNode()
	err := c.Write(ctx, changes)
	if err == nil {
		err = c.compact(ctx, c.Head()-r.Int64N(5))
	}
	if err == nil && ended {
		c.EachWay(func(p *Proxy) { p.Reset(EveryConn) })
		err = c.Write(ctx, r.IntN(20))
	}
	return err
}

// defragment is the housekeeping that operators run from cron, often on all members at once: each one
// stands still while it copies its database.
func defragment(ctx context.Context, c Target, r *rand.Rand) error {
	c.Logf("defragment")
	if err := c.compact(ctx, c.Head()-r.Int64N(100)); err != nil {
		return err
	}
	err := c.Do(ctx, "defragment", func(ctx context.Context, client *clientv3.Client) error {
		for _, i := range r.Perm(len(c.Members)) {
			if _, err := client.Defragment(ctx, c.Members[i].Client); err != nil {
				return err
			}
		}
		return nil
	})
	return firstError(err, c.AwaitAnswers(ctx))
}

// moveLeader is what an upgrade does before it stops a member, and what members do by themselves when
// machines are slow. No member is down, yet for a moment none may answer.
func moveLeader(ctx context.Context, c Target, r *rand.Rand) error {
	for range 1 + r.IntN(4) {
		leader, err := c.Leader(ctx)
		if err != nil {
			return err
		}
		to := c.Members[r.IntN(len(c.Members))]
		if to == leader {
			continue
		}
		c.Logf("%s hands on to %s", leader.Name, to.Name)
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		err = c.handOn(ctx, leader, to)
		cancel()
		if err != nil {
			return err
		}
	}
	return c.AwaitAnswers(ctx)
}

func (c Target) handOn(ctx context.Context, leader, to *Member) error {
	client, err := Dial(ctx, leader.Client) // only the leader can
	if err != nil {
		return err
	}
	defer client.Close()
	status, err := client.Status(ctx, to.Client)
	if err != nil {
		return err
	}
	_, err = client.MoveLeader(ctx, status.Header.MemberId)
	if errors.Is(err, rpctypes.ErrNotLeader) || errors.Is(err, rpctypes.ErrBadLeaderTransferee) {
		return nil // another election came first
	}
	return err
}
