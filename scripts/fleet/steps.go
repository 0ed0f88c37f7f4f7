//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/scripts/internal/measure"
)

// A stage is a step of the plan for one fleet.
type stage struct {
	name, about string
	do          func(ctx context.Context, f fleet, etcd string, r *result) error
}

// never is a sync period that does not come to its end.
const never = time.Hour

// plan gives the steps that were asked for, in their order, with what they need before them.
func (l *lab) plan(way string) []stage {
	wanted := func(name string) bool { return slices.Contains(l.steps, name) }
	var all []stage
	switch {
	case wanted("herd"):
		all = append(all, stage{"herd", "all start at the same moment", l.herd})
	case wanted("idle") || wanted("change") || wanted("outage"):
		all = append(all, stage{"", "", func(ctx context.Context, f fleet, etcd string, _ *result) error {
			_, err := f.start(ctx, etcd, never)
			return err
		}})
	}
	if wanted("idle") {
		all = append(all, stage{"idle", fmt.Sprintf("nothing happens for %v", l.idle), l.idleness})
	}
	if wanted("change") {
		all = append(all, stage{"change", fmt.Sprintf("%d changes, each when all have the one before", l.changes), l.changing})
	}
	if wanted("outage") && way == direct {
		for _, lasts := range l.outages {
			all = append(all, stage{"outage", fmt.Sprintf("etcd is killed, and started again after %v", lasts), l.outage(lasts)})
		}
	}
	if wanted("resync") {
		all = append(all, stage{"resync", fmt.Sprintf("everything is read again about every %v", l.period), l.resyncing})
	}
	return all
}

// Units, with what a value in seconds or bytes is multiplied with.
const (
	micro = 1e6
	milli = 1e3
	kilo  = 1e-3
	mega  = 1e-6
)

// arrivals tells when the first, half of them, and the last were there.
func arrivals(r *result, at []time.Duration, since time.Duration) {
	h := make([]float64, len(at))
	for i, t := range at {
		h[i] = (t - since).Seconds() * milli
	}
	h = sorted(h)
	r.record("the first after", "ms", h[0])
	r.record("half of them after", "ms", h[len(h)/2])
	r.record("the last after", "ms", h[len(h)-1])
}

// costs tells what was used in a time, for each of so many, less what is used while nothing happens.
func (l *lab) costs(r *result, u usage, seconds, count float64, of string) {
	r.record("etcd's CPU for each "+of, "ms", (u.etcd.Seconds()-l.idling.etcd*seconds)/count*milli)
	if l.through != nil {
		r.record("the grpc-proxy's CPU for each "+of, "ms", (u.through.Seconds()-l.idling.through*seconds)/count*milli)
	}
	r.record("the fleet's CPU for each "+of, "ms", (u.fleet.Seconds()-l.idling.fleet*seconds)/count*milli)
	r.record("sent by etcd for each "+of, "kB", (u.sent-l.idling.sent*seconds)/count*kilo)
}

// solitude looks at an etcd without nodes.
func (l *lab) solitude(ctx context.Context, report func(result) error) error {
	before, err := l.use(ctx, nobody{})
	if err != nil {
		return err
	}
	if err := wait(ctx, l.idle); err != nil {
		return err
	}
	after, err := l.use(ctx, nobody{})
	if err != nil {
		return err
	}
	u, seconds := after.since(before)
	l.alone = u.etcd.Seconds() / seconds
	r := result{Fleet: "no nodes", Way: direct, Step: "idle", About: fmt.Sprintf("nothing happens for %v", l.idle)}
	r.record("etcd's CPU", "% of a processor", 100*l.alone)
	r.record("etcd's memory", "MB", u.memory*mega)
	return report(r)
}

// herd has all start at once, in every round anew.
func (l *lab) herd(ctx context.Context, f fleet, etcd string, r *result) error {
	for range l.rounds {
		f.stop()
		before, err := l.use(ctx, nobody{})
		if err != nil {
			return err
		}
		took, err := f.start(ctx, etcd, never)
		if err != nil {
			return err
		}
		after, err := l.use(ctx, f)
		if err != nil {
			return err
		}
		arrivals(r, took, 0)
		u, seconds := after.since(before)
		u.etcd -= time.Duration(l.alone * seconds * 1e9)
		l.costs(r, u, 0, float64(f.size()), "node")
		r.record("etcd's memory before", "MB", before.memory*mega)
		r.record("etcd's memory after", "MB", after.memory*mega)
	}
	return nil
}

// nobody has used nothing.
type nobody struct{ fleet }

func (nobody) pids() []int { return nil }

// idleness looks on while nothing happens.
func (l *lab) idleness(ctx context.Context, f fleet, _ string, r *result) error {
	if err := wait(ctx, 3*time.Second); err != nil { // what the start has left behind
		return err
	}
	before, err := l.use(ctx, f)
	if err != nil {
		return err
	}
	if err := wait(ctx, l.idle); err != nil {
		return err
	}
	after, err := l.use(ctx, f)
	if err != nil {
		return err
	}
	u, seconds := after.since(before)
	nodes := float64(f.size())
	l.idling = rates{u.etcd.Seconds() / seconds, u.through.Seconds() / seconds, u.fleet.Seconds() / seconds, u.sent / seconds}
	r.record("watches that etcd has", "", u.watchers)
	r.record("etcd's CPU", "% of a processor", 100*l.idling.etcd)
	r.record("etcd's CPU for each node, in a second", "us", (l.idling.etcd-l.alone)/nodes*micro)
	if l.through != nil {
		r.record("the grpc-proxy's CPU", "% of a processor", 100*l.idling.through)
	}
	r.record("a node's CPU, in a second", "us", l.idling.fleet/nodes*micro)
	r.record("sent by etcd to each node, in a second", "B", l.idling.sent/nodes)
	r.record("received by etcd from each node, in a second", "B", u.received/nodes/seconds)
	r.record("etcd's memory", "MB", u.memory*mega)
	return nil
}

// changing makes changes, each when all have the one before.
func (l *lab) changing(ctx context.Context, f fleet, _ string, r *result) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	bare, err := watchBarely(watching, l.client, l.canary.key)
	if err != nil {
		return err
	}
	before, err := l.use(ctx, f)
	if err != nil {
		return err
	}
	for range l.changes {
		c, err := l.change(ctx)
		if err != nil {
			return err
		}
		at, err := f.served(ctx, c)
		if err != nil {
			return err
		}
		r.record("etcd has answered the put after", "ms", (c.answered-c.put).Seconds()*milli)
		saw, err := bare(ctx, c.revision)
		if err != nil {
			return err
		}
		r.record("a bare watcher saw it after", "ms", (saw-c.put).Seconds()*milli)
		arrivals(r, at, c.put)
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	after, err := l.use(ctx, f)
	if err != nil {
		return err
	}
	u, seconds := after.since(before)
	l.costs(r, u, seconds, float64(l.changes), "change")
	return nil
}

// watchBarely watches a key with nothing but etcd's client, and tells when the event of a revision came.
func watchBarely(ctx context.Context, c *clientv3.Client, key string) (func(context.Context, int64) (time.Duration, error), error) {
	type event struct {
		revision int64
		at       time.Duration
	}
	events := make(chan event, 1000)
	watch := c.Watch(ctx, key, clientv3.WithCreatedNotify())
	if r, ok := <-watch; !ok || r.Err() != nil {
		return nil, fmt.Errorf("watch %s: %w", key, r.Err())
	}
	go func() {
		defer close(events)
		for r := range watch {
			at := measure.SinceBoot()
			for _, ev := range r.Events {
				events <- event{ev.Kv.ModRevision, at}
			}
		}
	}()
	return func(ctx context.Context, revision int64) (time.Duration, error) {
		for {
			select {
			case e, ok := <-events:
				if !ok || e.revision > revision {
					return 0, fmt.Errorf("the bare watcher did not see revision %d", revision)
				}
				if e.revision == revision {
					return e.at, nil
				}
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		}
	}, nil
}

// outage kills etcd, and starts it again. Time begins when etcd says that it is ready; what it has used for its
// own start is not counted.
func (l *lab) outage(lasts time.Duration) func(context.Context, fleet, string, *result) error {
	return func(ctx context.Context, f fleet, _ string, r *result) error {
		for range l.rounds {
			l.etcd.Kill()
			if err := wait(ctx, lasts); err != nil {
				return err
			}
			if err := l.etcd.Start(); err != nil {
				return err
			}
			var before usage // nothing was sent yet
			var err error
			began := measure.SinceBoot()
			if before.etcdAsked, err = measure.CPUOf([]int{l.etcd.PID()}); err != nil {
				return err
			}
			if before.fleet, err = measure.CPUOf(f.pids()); err != nil {
				return err
			}
			peak := watchPeaks(l.etcd.PID())
			err = l.reconnect()
			var c change
			if err == nil {
				c, err = l.change(ctx)
			}
			var at []time.Duration
			if err == nil {
				at, err = f.served(ctx, c)
			}
			highest := peak()
			if err != nil {
				return err
			}
			after, err := l.use(ctx, f)
			if err != nil {
				return err
			}
			arrivals(r, at, began)
			u, _ := after.since(before)
			l.costs(r, u, 0, float64(f.size()), "node")
			r.record("etcd's CPU at most, in 100 ms", "% of a processor", 100*highest)
			r.record("etcd's memory", "MB", after.memory*mega)
			if err := wait(ctx, 2*time.Second); err != nil { // a session that breaks at once begins anew more slowly
				return err
			}
		}
		return nil
	}
}

// watchPeaks looks at a process's share of a processor until it is asked for the highest.
func watchPeaks(pid int) func() float64 {
	const every = 100 * time.Millisecond
	stop, result := make(chan struct{}), make(chan float64)
	go func() {
		highest := 0.0
		at := time.Now()
		used, err := measure.CPUOf([]int{pid})
		for err == nil {
			select {
			case <-time.After(every):
				var now time.Duration
				if now, err = measure.CPUOf([]int{pid}); err == nil {
					highest = max(highest, (now-used).Seconds()/time.Since(at).Seconds())
					used, at = now, time.Now()
				}
				continue
			case <-stop:
			}
			break
		}
		result <- highest
	}()
	return func() float64 {
		close(stop)
		return <-result
	}
}

// resyncing starts all with a short sync period, and looks on for a few of them. In the first two it looks
// often: all have started together, and the question is whether they go on in step. What that costs etcd is not
// counted: the next two are left alone.
func (l *lab) resyncing(ctx context.Context, f fleet, etcd string, r *result) error {
	f.stop()
	if _, err := f.start(ctx, etcd, l.period); err != nil {
		return err
	}
	const parts = 20 // of a period
	now, err := l.use(ctx, nobody{})
	if err != nil {
		return err
	}
	first, busiest := now, 0.0 // bytes in a second
	for range 2 * parts {
		if err := wait(ctx, l.period/parts); err != nil {
			return err
		}
		last := now
		if now, err = l.use(ctx, nobody{}); err != nil {
			return err
		}
		busiest = max(busiest, (now.sent-last.sent)/(now.asked-last.asked).Seconds())
	}
	average := (now.sent - first.sent) / (now.asked - first.asked).Seconds()

	already, err := f.resyncs(ctx)
	if err != nil {
		return err
	}
	before, err := l.use(ctx, f)
	if err != nil {
		return err
	}
	if err := wait(ctx, 2*l.period); err != nil {
		return err
	}
	after, err := l.use(ctx, f)
	if err != nil {
		return err
	}
	resyncs, err := f.resyncs(ctx)
	if err != nil {
		return err
	}
	if resyncs == already {
		return fmt.Errorf("nobody has read everything again in 2 × %v", l.period)
	}
	u, seconds := after.since(before)
	r.record("resyncs", "", resyncs-already)
	l.costs(r, u, seconds, resyncs-already, "resync")
	r.record("sent by etcd in a second", "kB", u.sent/seconds*kilo)
	r.record("the busiest twentieth of the first two periods", "times the average", busiest/average)
	r.record("etcd's memory", "MB", after.memory*mega)
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
