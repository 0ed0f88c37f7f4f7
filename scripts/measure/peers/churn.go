//go:build linux

package peers

import (
	"context"
	"fmt"
	"time"

	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
)

// What clients that have come and gone leave behind: the same number of them twice. What a proxy keeps in
// order to use it again is there after the first; what is more after the second has leaked.

const (
	churnConnections = 1_000_000
	churnSessions    = 100_000
	churnRate        = 4000 // UDP sessions in a second
)

// churnFlags are such that some UDP sessions are evicted while others are silent for too long: both ways
// to end.
var churnFlags = []string{"-profiling", "-udp_timeout=1s", "-max_udp_sessions=3000", "-max_udp_sessions_per_service=3000"}

// A holding is what a process has at rest.
type holding struct{ memory, descriptors, goroutines float64 }

// holdingOf waits until it stays the same.
func holdingOf(ctx context.Context, p *proxy) (h holding, err error) {
	const limit = 5 * time.Second
	if h.goroutines, err = measure.Settle(ctx, limit, func() (float64, error) {
		all, err := p.ask(ctx)
		return all.Sum("go_goroutines"), err
	}); err != nil {
		return h, err
	}
	if h.descriptors, err = measure.Settle(ctx, limit, func() (float64, error) { return measure.DescriptorsOf(p.pids) }); err != nil {
		return h, err
	}
	if err := p.collect(ctx); err != nil { // or it is chance how much of it waits for that
		return h, err
	}
	h.memory, err = measure.Settle(ctx, limit, func() (float64, error) { return measure.AnonymousMemory(p.pids) })
	return h, err
}

// churn has clients come and go twice, and compares what is left behind. Counted is the metric that each of
// them adds one to when it ends.
func churn(ctx context.Context, p *proxy, counted string, comeAndGo func() ([]*load.Counters, error)) (sample, error) {
	s := sample{Values: make(map[string]float64)}
	var at [3]holding
	var err error
	if at[0], err = holdingOf(ctx, p); err != nil {
		return s, err
	}
	done := 0.0 // by both
	for i := 1; i < len(at); i++ {
		began := time.Now()
		counters, err := comeAndGo()
		if err != nil {
			return s, err
		}
		took, before := time.Since(began), done
		for _, t := range counters {
			s.Fail(t.Failed, t.Why)
			done += float64(t.Done.Load())
		}
		s.Values["rate"] = (done - before) / took.Seconds()
		select {
		case <-time.After(2 * time.Second): // the last of them are silent for too long
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
		if at[i], err = holdingOf(ctx, p); err != nil {
			return s, err
		}
	}
	all, err := p.ask(ctx)
	if err != nil {
		return s, err
	}
	// More of them is no surprise: a UDP client that was evicted before it asked once more has begun another.
	if ended := all.Sum(counted); ended < 0.99*done && s.Failed == 0 {
		s.Failed, s.Why = 1, fmt.Sprintf("there were %.0f clients, and it has counted %.0f", done, ended)
	}
	s.Values["began"], s.Values["first"], s.Values["second"] = at[0].memory, at[1].memory, at[2].memory
	s.Values["growth"] = at[2].memory / at[1].memory
	s.Values["descriptors"] = at[2].descriptors - at[1].descriptors
	s.Values["goroutines"] = at[2].goroutines - at[1].goroutines
	return s, nil
}

// churnTCP has half of the connections end by a reset, and half by both sides finishing.
func churnTCP(ctx context.Context, b *bench, p *proxy) (sample, error) {
	return churn(ctx, p, "kubeproxy_connections_ended_total", func() (all []*load.Counters, err error) {
		for _, fin := range [...]bool{false, true} {
			l := load.NewConnect(p.to(p.at.Echo), clients, fin)
			l.Most = b.fewer(churnConnections) / 2
			if err := load.Complete(ctx, l); err != nil {
				return nil, err
			}
			all = append(all, &l.Counters)
		}
		return all, nil
	})
}

func churnUDP(ctx context.Context, b *bench, p *proxy) (sample, error) {
	return churn(ctx, p, "kubeproxy_udp_sessions_ended_total", func() ([]*load.Counters, error) {
		l := load.NewSessions(p.to(p.at.UDP))
		l.Most, l.Rate = b.fewer(churnSessions), churnRate
		return []*load.Counters{&l.Counters}, load.Complete(ctx, l)
	})
}
