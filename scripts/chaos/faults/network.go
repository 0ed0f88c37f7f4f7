package faults

import (
	"context"
	"math/rand/v2"
	"time"

	"kubeproxy/scripts/internal/try"
)

func init() {
	all = append(all,
		Fault{Name: "cut", About: "every connection between proxy and etcd is reset, several times", small: true, inject: cut},
		Fault{Name: "cut-watch", About: "the connection of the watch is reset, and no other", small: true, inject: cutWatch},
		Fault{Name: "refuse", About: "connections to etcd are refused", small: true, inject: refuse},
		Fault{Name: "swallow", About: "bytes are lost both ways, on new connections too, without an error",
			Silent: true, Knob: "ProbePeriod", small: true, inject: swallowing(Blackhole)},
		Fault{Name: "swallow-to-proxy", About: "what etcd sends is lost, what the proxy sends arrives",
			Silent: true, Knob: "ProbePeriod", inject: swallowing(MuteTarget)},
		Fault{Name: "swallow-to-etcd", About: "what the proxy sends is lost, what etcd sends arrives",
			Silent: true, Knob: "ProbePeriod", inject: swallowing(MuteClient)},
		Fault{Name: "swallow-watch", About: "the connection of the watch falls silent for ever, while all others work",
			Silent: true, Knob: "ProbePeriod", small: true, inject: swallowWatch},
		Fault{Name: "hold", About: "bytes of some connections arrive late, after others that were sent later",
			Silent: true, Knob: "ProbePeriod", inject: hold},
		Fault{Name: "lose-packets", About: "packets are dropped both ways or one way, with nftables",
			Silent: true, Knob: "ProbePeriod", able: CanLosePackets, inject: lose},
		Fault{Name: "lose-watch-packets", About: "the packets of the watch's connection are dropped, and no others",
			Silent: true, Knob: "ProbePeriod", able: CanLosePackets, inject: loseWatch},
	)
}

// cut is a firewall that is reloaded, a load balancer that is replaced, or a member that sheds its clients. Etcd goes on, so what was
// committed meanwhile can be read.
func cut(ctx context.Context, c Target, r *rand.Rand) error {
	for range 1 + r.IntN(4) {
		n := 0
		c.EachWay(func(p *Proxy) { n += p.Reset(EveryConn) })
		c.Logf("cut %d connections", n)
		if err := c.Write(ctx, r.IntN(10)); err != nil {
			return err
		}
	}
	return nil
}

// cutWatch resets no list: a source that takes one working connection as proof of the other would go on serving old state.
func cutWatch(ctx context.Context, c Target, r *rand.Rand) error {
	n := 0
	c.EachWay(func(p *Proxy) { n += p.Reset(WatchConns) })
	c.Logf("cut %d connections that watch", n)
	return c.Write(ctx, r.IntN(10))
}

// refuse is a network policy or a wrong route: etcd works, and the proxy cannot reach it. Sometimes the revision that the proxy needs next
// has been compacted when it can.
func refuse(ctx context.Context, c Target, r *rand.Rand) error {
	length, compacted := between(r, 200*time.Millisecond, 4*time.Second), r.IntN(2) == 0
	c.Logf("refuse for %v; compact: %t", length, compacted)
	c.EachWay((*Proxy).Refuse)
	err := sleep(ctx, length)
	if err == nil {
		err = c.Write(ctx, r.IntN(30))
	}
	if err == nil && compacted {
		err = c.compact(ctx, c.Head()-r.Int64N(10))
	}
	return firstError(err, c.Restore())
}

// swallowing is a middlebox that has lost its state, a half-broken cable, or an asymmetric route: while it lasts, nothing arrives in the
// given directions, to one member or to all, on old connections and on new ones. Afterwards only new connections work, and no error says so.
func swallowing(mode Mode) func(context.Context, Target, *rand.Rand) error {
	return func(ctx context.Context, c Target, r *rand.Rand) error {
		struck := c.some(r)
		length := between(r, 500*time.Millisecond, 4*time.Second)
		n := 0
		for _, m := range struck {
			m.Way.SetNew(mode)
			n += m.Way.Set(EveryConn, mode)
		}
		c.Logf("swallow on %d connections to %s for %v", n, names(struck), length)
		err := sleep(ctx, length)
		if err == nil {
			err = c.Write(ctx, r.IntN(10))
		}
		return firstError(err, c.Restore())
	}
}

// swallowWatch is a watch that falls silent without an error: a middlebox forgets its connection, at random in one direction or both, while
// lists over another connection still work.
func swallowWatch(ctx context.Context, c Target, r *rand.Rand) error {
	m := []Mode{Blackhole, MuteTarget, MuteClient}[r.IntN(3)]
	n := 0
	c.EachWay(func(p *Proxy) { n += p.Set(WatchConns, m) })
	c.Logf("swallow bytes of %d watches: %+v", n, m)
	return c.Write(ctx, r.IntN(20))
}

// hold is congestion: queues on the way, retransmissions, a reader that is not scheduled. Bytes arrive late, after others that were sent
// later over another connection.
func hold(ctx context.Context, c Target, r *rand.Rand) error {
	chosen := []ConnChoice{EveryConn, WatchConns, OtherConns}[r.IntN(3)]
	length := between(r, 200*time.Millisecond, 4*time.Second)
	n := 0
	c.EachWay(func(p *Proxy) { n += p.Set(chosen, Hold) })
	c.Logf("hold %d connections for %v", n, length)
	err := sleep(ctx, length)
	if err == nil {
		err = c.Write(ctx, r.IntN(30))
	}
	return firstError(err, c.Restore())
}

// lose is a broken cable: packets are lost, nothing is acknowledged, and a new connection gets no answer. Unlike a connection that lost
// bytes, one that lost packets continues when they arrive again: after the next retransmission, which may be seconds away.
func lose(ctx context.Context, c Target, r *rand.Rand) error {
	way := r.IntN(3)
	struck := c.some(r)
	length := between(r, 500*time.Millisecond, 6*time.Second)
	var matches []string
	for _, m := range struck {
		if way != 1 {
			matches = append(matches, PacketsTo(m.Way.Addr))
		}
		if way != 2 {
			matches = append(matches, PacketsFrom(m.Way.Addr))
		}
	}
	c.Logf("lose packets %s of %s for %v", []string{"both ways", "to the proxy", "to etcd"}[way], names(struck), length)
	return c.losing(ctx, r, length, matches)
}

// loseWatch loses packets of one connection only, as a firewall does that forgot it.
func loseWatch(ctx context.Context, c Target, r *rand.Rand) error {
	way := r.IntN(3)
	length := between(r, 500*time.Millisecond, 6*time.Second)
	var matches []string
	c.EachWay(func(p *Proxy) {
		for _, client := range p.Clients(WatchConns) {
			if way != 1 {
				matches = append(matches, PacketsBetween(client, p.Addr))
			}
			if way != 2 {
				matches = append(matches, PacketsBetween(p.Addr, client))
			}
		}
	})
	c.Logf("lose packets of watches, %d rules, for %v", len(matches), length)
	if len(matches) == 0 {
		return nil // between two sessions there is no watch
	}
	return c.losing(ctx, r, length, matches)
}

func (c Target) losing(ctx context.Context, r *rand.Rand, length time.Duration, matches []string) (err error) {
	defer try.Catch(&err)
	try.Do(c.LosePackets(matches...))
	defer c.EndLoss()
	try.Do(sleep(ctx, length))
	return c.Write(ctx, r.IntN(10))
}
