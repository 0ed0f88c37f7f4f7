//go:build linux

package peers

import (
	"context"
	"net/netip"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// What clients notice of an endpoint that fails, beside two that are well.

// situations are services of three endpoints each, of which the third is well, refuses, or is silent: no
// packet is ever answered. Each has a port of its own.
var situations = [...]string{"healthy", "refusing", "silent"}

// How many connections are made in each situation, and how many of them are the first few, in which the
// proxy finds out: they may not fail, but may take longer.
const (
	failingConnections = 10_000
	failingFirst       = 100
	failingTurns       = 10
)

// offerFailing stores the services, and opens what does not answer. Their ports begin at offered, and
// no other program has the port dead.
func (b *bench) offerFailing(ctx context.Context, offered, dead uint16) (err error) {
	defer try.Catch(&err)
	b.failing = offered
	third := [len(situations)]netip.AddrPort{}
	third[0] = netip.AddrPortFrom(load.BackendHost(2), b.behind.Echo)
	third[1] = netip.AddrPortFrom(load.BackendHost(2), dead)
	third[2] = netip.AddrPortFrom(load.BackendHost(3), dead)
	try.Do(load.Refuse(third[1]))
	try.Do(load.FallSilent(third[2]))
	var ops []clientv3.Op
	for i, name := range situations {
		ops = append(ops, offer(name, "TCP", offered+uint16(i), append(load.BackendsAt(b.behind.Echo)[:2:2], third[i]))...)
	}
	return measure.Store(ctx, b.etcd, len(ops), ops...)
}

// failing makes as many connections in each situation, in turns, so that the machine's mood is the same for
// all; in one process, which was warmed by others before, and has never seen these endpoints.
func failing(ctx context.Context, b *bench, p *proxy) (sample, error) {
	s := sample{Values: make(map[string]float64)}
	warm := load.NewConnect(p.to(p.at.Echo), clients, false)
	warm.Most = b.fewer(failingConnections) / 2
	if err := load.Complete(ctx, warm); err != nil {
		return s, err
	}
	s.Fail(warm.Failed, warm.Why)
	var latency [len(situations)]measure.Histogram
	for turn := range failingTurns {
		for _, i := range b.Random.Perm(len(situations)) {
			l := load.NewConnect(p.to(b.failing+uint16(i)), clients, false)
			l.Most = b.fewer(failingConnections) / failingTurns
			if turn == 0 {
				l.First = b.fewer(failingFirst)
			}
			if err := load.Complete(ctx, l); err != nil {
				return s, err
			}
			s.Fail(l.Failed, l.Why)
			latency[i].Add(&l.Latency)
			longest := "longest " + situations[i]
			s.Values[longest] = max(s.Values[longest], l.Longest.Seconds())
		}
	}
	for i, name := range situations {
		s.Values[name] = latency[i].Quantile(0.99)
		s.Values[name+" ratio"] = s.Values[name] / s.Values[situations[0]]
	}
	all, err := p.ask(ctx)
	s.Values["waited"] = all.Sum("kubeproxy_dial_failures_total", "service", "default/silent")
	return s, err
}
