//go:build linux

package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// A stage is a step of the plan for one fleet.
type stage struct {
	name, about string
	do          func(ctx context.Context, f fleet, etcd string, r *measure.Table) error
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
		all = append(all, stage{"", "", func(ctx context.Context, f fleet, etcd string, _ *measure.Table) error {
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
	if wanted("outage") && way != grpcProxy {
		killed := map[string]string{direct: "etcd", apiServer: "the API server"}[way]
		for _, lasts := range l.outages {
			all = append(all, stage{"outage", fmt.Sprintf("%s is killed, and started again after %v", killed, lasts), l.outage(lasts)})
		}
	}
	if wanted("resync") {
		all = append(all, stage{"resync", fmt.Sprintf("everything is read again about every %v", l.period), l.resyncing})
	}
	if wanted("frozen") {
		all = append(all, stage{"frozen", fmt.Sprintf("all are stopped for %v, beside %d puts a second %s the prefix", l.freezes, l.rate, l.where), l.freezing})
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
func arrivals(r *measure.Table, at []time.Duration, since time.Duration) {
	h := make([]float64, len(at))
	for i, t := range at {
		h[i] = (t - since).Seconds() * milli
	}
	h = sorted(h)
	record(r, "the first after", "ms", h[0])
	record(r, "half of them after", "ms", h[len(h)/2])
	record(r, "the last after", "ms", h[len(h)-1])
}

// costs tells what was used in a time, for each of so many, less what is used while nothing happens.
func (l *lab) costs(r *measure.Table, u usage, seconds, count float64, of string) {
	record(r, "etcd's CPU for each "+of, "ms", (u.etcd.Seconds()-l.idling.etcd*seconds)/count*milli)
	if l.through != nil {
		record(r, "the "+l.way+"'s CPU for each "+of, "ms", (u.through.Seconds()-l.idling.through*seconds)/count*milli)
	}
	record(r, "the fleet's CPU for each "+of, "ms", (u.fleet.Seconds()-l.idling.fleet*seconds)/count*milli)
	record(r, "sent by etcd for each "+of, "kB", (u.sent-l.idling.sent*seconds)/count*kilo)
}

// solitude looks at an etcd without nodes.
func (l *lab) solitude(ctx context.Context, report func(*measure.Table) error) (err error) {
	defer try.Catch(&err)
	before := try.Get(l.use(ctx, none{}))
	try.Do(measure.Pause(ctx, l.idle))
	after := try.Get(l.use(ctx, none{}))
	u, seconds := after.since(before)
	l.alone = u.etcd.Seconds() / seconds
	r := table("no nodes", direct, "idle", fmt.Sprintf("nothing happens for %v", l.idle))
	record(r, "etcd's CPU", "% of a processor", 100*l.alone)
	record(r, "etcd's memory", "MB", u.memory*mega)
	return report(r)
}

// herd has all start at once, in every round anew.
func (l *lab) herd(ctx context.Context, f fleet, etcd string, r *measure.Table) (err error) {
	defer try.Catch(&err)
	for range l.Rounds {
		f.stop()
		before := try.Get(l.use(ctx, none{}))
		took := try.Get(f.start(ctx, etcd, never))
		after := try.Get(l.use(ctx, f))
		arrivals(r, took, 0)
		u, seconds := after.since(before)
		u.etcd -= time.Duration(l.alone * seconds * 1e9)
		l.costs(r, u, 0, float64(f.size()), "node")
		record(r, "etcd's memory before", "MB", before.memory*mega)
		record(r, "etcd's memory after", "MB", after.memory*mega)
	}
	return nil
}

// none is a fleet without processes: it uses nothing.
type none struct{ fleet }

func (none) pids() []int { return nil }

// idleness looks on while nothing happens.
func (l *lab) idleness(ctx context.Context, f fleet, _ string, r *measure.Table) (err error) {
	defer try.Catch(&err)
	try.Do(measure.Pause(ctx, 3*time.Second)) // what the start has left behind
	before := try.Get(l.use(ctx, f))
	try.Do(measure.Pause(ctx, l.idle))
	after := try.Get(l.use(ctx, f))
	u, seconds := after.since(before)
	nodes := float64(f.size())
	l.idling = rates{u.etcd.Seconds() / seconds, u.through.Seconds() / seconds, u.fleet.Seconds() / seconds, u.sent / seconds}
	record(r, "watches that etcd has", "", u.watchers)
	record(r, "etcd's CPU", "% of a processor", 100*l.idling.etcd)
	record(r, "etcd's CPU for each node, in a second", "us", (l.idling.etcd-l.alone)/nodes*micro)
	if l.through != nil {
		record(r, "the "+l.way+"'s CPU", "% of a processor", 100*l.idling.through)
	}
	record(r, "a node's CPU, in a second", "us", l.idling.fleet/nodes*micro)
	record(r, "sent by etcd to each node, in a second", "B", l.idling.sent/nodes)
	record(r, "received by etcd from each node, in a second", "B", u.received/nodes/seconds)
	record(r, "etcd's memory", "MB", u.memory*mega)
	return nil
}

// changing makes changes, each when all have the one before.
func (l *lab) changing(ctx context.Context, f fleet, _ string, r *measure.Table) (err error) {
	defer try.Catch(&err)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	bare := try.Get(watchBarely(watching, l.client, l.canary.key))
	before := try.Get(l.use(ctx, f))
	for range l.changes {
		c := try.Get(l.change(ctx))
		at := try.Get(f.served(ctx, c))
		record(r, "etcd has answered the put after", "ms", (c.answered-c.put).Seconds()*milli)
		saw := try.Get(bare(ctx, c.revision))
		record(r, "a bare watcher saw it after", "ms", (saw-c.put).Seconds()*milli)
		arrivals(r, at, c.put)
		try.Do(measure.Pause(ctx, 20*time.Millisecond))
	}
	after := try.Get(l.use(ctx, f))
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

// outage kills etcd, or the API server, in every round, and starts it again.
func (l *lab) outage(lasts time.Duration) func(context.Context, fleet, string, *measure.Table) error {
	return func(ctx context.Context, f fleet, _ string, r *measure.Table) error {
		for range l.Rounds {
			if err := l.oneOutage(ctx, f, lasts, r); err != nil {
				return err
			}
		}
		return nil
	}
}

// oneOutage measures one. Time begins when the server answers again; what it has used for its own start is not counted.
func (l *lab) oneOutage(ctx context.Context, f fleet, lasts time.Duration, r *measure.Table) (err error) {
	defer try.Catch(&err)
	restart, server := l.restartEtcd, "etcd"
	if l.through != nil {
		restart, server = l.restartBetween, "the "+l.way
	}
	pid, before := try.Get2(restart(ctx, f, lasts))
	began := measure.SinceBoot()
	peak := sync.OnceValue(watchPeaks(pid))
	defer peak() // or it would watch on
	at := try.Get(f.served(ctx, try.Get(l.change(ctx))))
	highest := peak()
	after := try.Get(l.use(ctx, f))
	arrivals(r, at, began)
	u, _ := after.since(before)
	l.costs(r, u, 0, float64(f.size()), "node")
	record(r, server+"'s CPU at most, in 100 ms", "% of a processor", 100*highest)
	record(r, "etcd's memory", "MB", after.memory*mega)
	return measure.Pause(ctx, 2*time.Second) // a session that breaks at once begins anew more slowly
}

// restartEtcd kills etcd, starts it again after a while, and returns its process and what was used until then.
func (l *lab) restartEtcd(ctx context.Context, f fleet, after time.Duration) (pid int, before usage, err error) {
	defer try.Catch(&err)
	l.etcd.Kill()
	try.Do(measure.Pause(ctx, after))
	try.Do(l.etcd.Start())
	pid = l.etcd.PID()
	before = usage{etcdAsked: try.Get(measure.CPUOf([]int{pid})), fleet: try.Get(measure.CPUOf(f.pids()))} // nothing was sent yet
	return pid, before, l.reconnect()
}

// restartBetween is restartEtcd of what is between etcd and the fleet.
func (l *lab) restartBetween(ctx context.Context, f fleet, after time.Duration) (pid int, before usage, err error) {
	defer try.Catch(&err)
	l.through.Kill()
	try.Do(measure.Pause(ctx, after))
	try.Do(l.restart())
	return l.through.PID(), try.Get(l.use(ctx, f)), nil
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
func (l *lab) resyncing(ctx context.Context, f fleet, etcd string, r *measure.Table) (err error) {
	defer try.Catch(&err)
	f.stop()
	try.Get(f.start(ctx, etcd, l.period))
	const parts = 20 // of a period
	now := try.Get(l.use(ctx, none{}))
	first, busiest := now, 0.0 // bytes in a second
	for range 2 * parts {
		try.Do(measure.Pause(ctx, l.period/parts))
		last := now
		now = try.Get(l.use(ctx, none{}))
		busiest = max(busiest, (now.sent-last.sent)/(now.asked-last.asked).Seconds())
	}
	average := (now.sent - first.sent) / (now.asked - first.asked).Seconds()

	already := try.Get(f.resyncs(ctx))
	before := try.Get(l.use(ctx, f))
	try.Do(measure.Pause(ctx, 2*l.period))
	after := try.Get(l.use(ctx, f))
	resyncs := try.Get(f.resyncs(ctx))
	if resyncs == already {
		return fmt.Errorf("nobody has read everything again in 2 × %v", l.period)
	}
	u, seconds := after.since(before)
	record(r, "resyncs", "", resyncs-already)
	l.costs(r, u, seconds, resyncs-already, "resync")
	record(r, "sent by etcd in a second", "kB", u.sent/seconds*kilo)
	record(r, "the busiest twentieth of the first two periods", "times the average", busiest/average)
	record(r, "etcd's memory", "MB", after.memory*mega)
	return nil
}
