package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"kubeproxy/scripts/internal/try"
)

func init() {
	faults = append(faults,
		fault{name: "cut", about: "every connection between proxy and etcd is reset, several times", small: true, inject: cut},
		fault{name: "cut-watch", about: "the connection of the watch is reset, and no other", small: true, inject: cutWatch},
		fault{name: "refuse", about: "etcd cannot be reached, and says so", small: true, inject: refuse},
		fault{name: "swallow", about: "bytes vanish both ways, new connections' too, and nobody is told",
			silent: true, knob: "ProbePeriod", small: true, inject: swallowing(deaf)},
		fault{name: "swallow-to-proxy", about: "what etcd says vanishes, what the proxy says arrives",
			silent: true, knob: "ProbePeriod", inject: swallowing(mute)},
		fault{name: "swallow-to-etcd", about: "what the proxy says vanishes, what etcd says arrives",
			silent: true, knob: "ProbePeriod", inject: swallowing(unheard)},
		fault{name: "swallow-watch", about: "the connection of the watch falls silent for ever, while all others work",
			silent: true, knob: "ProbePeriod", small: true, inject: swallowWatch},
		fault{name: "hold", about: "bytes of some connections arrive late, after others that were sent later",
			silent: true, knob: "ProbePeriod", inject: hold},
		fault{name: "lose-packets", about: "packets are dropped both ways or one way, with nftables",
			silent: true, knob: "ProbePeriod", able: canLosePackets, inject: lose},
		fault{name: "lose-watch-packets", about: "the packets of the watch's connection are dropped, and no others",
			silent: true, knob: "ProbePeriod", able: canLosePackets, inject: loseWatch},
	)
}

// cut is a firewall that is reloaded, a load balancer that is replaced, a member that sheds its
// clients. Etcd lives on, so whatever was committed meanwhile is there to be asked for.
func cut(ctx context.Context, c *cluster, r *rand.Rand) error {
	for range 1 + r.IntN(4) {
		n := 0
		c.each(func(b *faultProxy) { n += b.cut(all) })
		c.stage.logf("cut %d connections", n)
		if err := c.stage.write(ctx, r.IntN(10)); err != nil {
			return err
		}
	}
	return nil
}

// cutWatch leaves lists alone: whoever believes that the connection which works proves the other one
// serves what it knew last.
func cutWatch(ctx context.Context, c *cluster, r *rand.Rand) error {
	n := 0
	c.each(func(b *faultProxy) { n += b.cut(watches) })
	c.stage.logf("cut %d connections that watch", n)
	return c.stage.write(ctx, r.IntN(10))
}

// refuse is a network policy or a wrong route: etcd is well and goes on, and the proxy may not talk to
// it. Sometimes what it would ask for next has been compacted when it may again.
func refuse(ctx context.Context, c *cluster, r *rand.Rand) error {
	length, compacted := between(r, 200*time.Millisecond, 4*time.Second), r.IntN(2) == 0
	c.stage.logf("refuse for %v; compact: %t", length, compacted)
	c.each((*faultProxy).refuse)
	err := sleep(ctx, length)
	if err == nil {
		err = c.stage.write(ctx, r.IntN(30))
	}
	if err == nil && compacted {
		err = c.compact(ctx, c.stage.head()-r.Int64N(10))
	}
	return firstError(err, c.restore())
}

// swallowing is a middlebox which has lost its state, a half-broken cable, an asymmetric route: while
// it lasts nothing arrives in the directions given, at one member's or at all, on old connections and
// on new ones. When it is over only new connections carry anything, and nobody says that.
func swallowing(m mode) func(context.Context, *cluster, *rand.Rand) error {
	return func(ctx context.Context, c *cluster, r *rand.Rand) error {
		struck := c.some(r)
		length := between(r, 500*time.Millisecond, 4*time.Second)
		n := 0
		for _, m2 := range struck {
			m2.faultProxy.setNew(m)
			n += m2.faultProxy.set(all, m)
		}
		c.stage.logf("swallow on %d connections to %s for %v", n, names(struck), length)
		err := sleep(ctx, length)
		if err == nil {
			err = c.stage.write(ctx, r.IntN(10))
		}
		return firstError(err, c.restore())
	}
}

// swallowWatch is what users met as the watch that died without a word: its connection is forgotten
// somewhere on the way, at random in one direction or both, while lists over another connection go
// on working.
func swallowWatch(ctx context.Context, c *cluster, r *rand.Rand) error {
	m := []mode{deaf, mute, unheard}[r.IntN(3)]
	n := 0
	c.each(func(b *faultProxy) { n += b.set(watches, m) })
	c.stage.logf("swallow what %d watches say or hear: %+v", n, m)
	return c.stage.write(ctx, r.IntN(20))
}

// hold is congestion: queues on the way, retransmissions, a reader that is not scheduled. Bytes are
// late, and what was sent afterwards over another connection overtakes them.
func hold(ctx context.Context, c *cluster, r *rand.Rand) error {
	chosen := []func(*lane) bool{all, watches, others}[r.IntN(3)]
	length := between(r, 200*time.Millisecond, 4*time.Second)
	n := 0
	c.each(func(b *faultProxy) { n += b.set(chosen, suspended) })
	c.stage.logf("hold %d connections for %v", n, length)
	err := sleep(ctx, length)
	if err == nil {
		err = c.stage.write(ctx, r.IntN(30))
	}
	return firstError(err, c.restore())
}

// lose is the cable itself: packets are gone, no acknowledgement comes, and a new connection gets no
// answer at all. Unlike a swallowed connection one that lost packets goes on when they arrive again:
// after the next retransmission, which may be seconds away.
func lose(ctx context.Context, c *cluster, r *rand.Rand) error {
	way := r.IntN(3)
	struck := c.some(r)
	length := between(r, 500*time.Millisecond, 6*time.Second)
	var matches []string
	for _, m := range struck {
		if way != 1 {
			matches = append(matches, packetsTo(m.faultProxy.addr))
		}
		if way != 2 {
			matches = append(matches, packetsFrom(m.faultProxy.addr))
		}
	}
	c.stage.logf("lose packets %s of %s for %v", []string{"both ways", "to the proxy", "to etcd"}[way], names(struck), length)
	return c.losing(ctx, r, length, matches)
}

// loseWatch loses packets of one connection only, as a firewall does that forgot it.
func loseWatch(ctx context.Context, c *cluster, r *rand.Rand) error {
	way := r.IntN(3)
	length := between(r, 500*time.Millisecond, 6*time.Second)
	var matches []string
	c.each(func(b *faultProxy) {
		b.each(watches, func(l *lane) {
			client := l.client.RemoteAddr().String()
			if way != 1 {
				matches = append(matches, fmt.Sprintf("%s tcp sport %s", packetsTo(b.addr), portOf(client)))
			}
			if way != 2 {
				matches = append(matches, fmt.Sprintf("%s tcp dport %s", packetsFrom(b.addr), portOf(client)))
			}
		})
	})
	c.stage.logf("lose packets of watches, %d rules, for %v", len(matches), length)
	if len(matches) == 0 {
		return nil // between two sessions there is no watch
	}
	return c.losing(ctx, r, length, matches)
}

func (c *cluster) losing(ctx context.Context, r *rand.Rand, length time.Duration, matches []string) (err error) {
	defer try.Catch(&err)
	c.loss = try.Get(losePackets(matches...))
	defer c.packetsArrive()
	try.Do(sleep(ctx, length))
	return c.stage.write(ctx, r.IntN(10))
}
