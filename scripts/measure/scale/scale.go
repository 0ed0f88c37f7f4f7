//go:build linux

// Package scale measures what kube-proxy spends on a change, a resync and a start when there are few services and
// when there are many, and what its clients notice when everything changes.
//
// For each size there is an etcd that holds so many services. In every round a kube-proxy is started for each of
// them, in random order, and does everything once. docs/performance.md tells what each row means.
package scale

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/internal/process"
	"kubeproxy/registry"
	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// A bench is what all rows share.
type bench struct {
	*measure.Site
	options
	behind load.Ports
	greets uint16
	stocks []*stock
}

// Roles are what the processes do that it starts.
var Roles = map[string]measure.Role{
	"backends": func(args []string) error { return load.RunBackends(args) },
	"greeters": func(args []string) error { return runGreeters(args[0]) },
	"naive":    func(args []string) error { return runNaive(args[0]) },
	"reader":   func(args []string) error { return runReader(args[0]) },
	"watcher":  func(args []string) error { return measure.RunWatcher(args[0], args[1]) },
}

// Parse reads the command line.
func Parse(args []string) (measure.Options, func(context.Context, *measure.Site) error, error) {
	o, err := parseOptions(args)
	return o.Options, o.run, err
}

func (o options) run(ctx context.Context, site *measure.Site) error {
	// We measure beside saturating traffic, some of which is ours: nothing of ours should wait for a turn.
	runtime.GOMAXPROCS(runtime.NumCPU() + 2)
	debug.SetGCPercent(400)
	b := &bench{Site: site, options: o}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	return b.measure(ctx)
}

// prepare starts everything but kube-proxy, and fills the etcds.
func (b *bench) prepare(ctx context.Context) (err error) {
	defer try.Catch(&err)
	if b.profile != "" {
		try.Do(os.MkdirAll(b.profile, 0o755))
		b.flags = append(b.flags, "-profiling")
	}
	base := try.Get(measure.FreePorts(6))
	b.behind, b.greets = load.PortsFrom(base), base+4
	try.Get(load.StartBackends(b.Group, b.Executable, base, load.Light))
	greeters := try.Get(b.Group.Start("greeters", b.Executable, "greeters", strconv.Itoa(int(b.greets))))
	try.Do(greeters.Await(10*time.Second, func() bool { return greeters.Said("ready") }))
	for _, size := range b.sizes {
		if size.services+1000 > b.Descriptors {
			return fmt.Errorf("%d services need a descriptor limit of %d, and have %d (ulimit -n)", size.services, size.services+1000, b.Descriptors)
		}
		s := &stock{size: size, behind: b.behind, greets: b.greets}
		own := &process.Group{Dir: filepath.Join(b.Dir, size.name)} // of each there may be one etcd
		b.OnStop(func() { own.Stop() })
		try.Do(os.Mkdir(own.Dir, 0o700))
		etcd := try.Get(measure.StartEtcd(own, b.Etcd))
		s.url = etcd.URL()
		s.client = try.Get(measure.NewEtcdClient(s.url))
		try.Do(s.fill(ctx))
		b.stocks = append(b.stocks, s)
	}
	return nil
}

// measure does all rounds, and those of the churn after them.
func (b *bench) measure(ctx context.Context) (err error) {
	defer try.Catch(&err)
	busy := try.Get(measure.BusyNow(ctx))
	b.Report.Begin(os.Stdout, busy, fmt.Sprintf("%d rounds of %d changes, seed %d", b.Options.Rounds, b.changes, b.Seed))
	t := measure.NewTable("scale", "medians of all rounds [smallest, largest, or the 95 % interval from 6 rounds on], by services", lines)
	for _, s := range b.sizes {
		t.Subjects = append(t.Subjects, measure.Subject{Name: s.name, Ours: true})
	}
	err = b.Rounds(ctx, t, b.Options.Rounds, func(ctx context.Context, i int) (measure.Sample, error) {
		return b.timed(ctx, b.stocks[i], "", b.once)
	})
	if err != nil {
		return err
	}
	at := churned(b.sizes)
	if b.wants(rowChurn) {
		c := measure.NewTable("churn", "", nil, t.Subjects[at])
		err := b.Rounds(ctx, c, b.Options.Rounds, func(ctx context.Context, _ int) (measure.Sample, error) {
			s, err := b.timed(ctx, b.stocks[at], ", churn", b.churn)
			if err != nil { // all of a round or nothing: what belongs together is compared
				clear(s.Values)
			}
			return s, err
		})
		if err != nil {
			return err
		}
		t.Merge(c)
	}
	t.Judge(bars(b.sizes[at].name))
	t.PrintLines(os.Stdout)
	try.Do(b.Report.Add(t, b.Options.JSON))
	return b.Report.Err(os.Stdout, func(v measure.Verdict) bool { return v == measure.Missed })
}

// timed does something once for one size, and says how long it took.
func (b *bench) timed(ctx context.Context, s *stock, what string, do func(context.Context, *stock, func(string, float64)) error) (measure.Sample, error) {
	began, sample := time.Now(), measure.Sample{Values: make(map[string]float64)}
	err := do(ctx, s, func(key string, v float64) { sample.Values[key] = v })
	fmt.Printf("%s%s: %v\n", s.size.name, what, time.Since(began).Round(100*time.Millisecond))
	return sample, err
}

// once does every row once for one size.
func (b *bench) once(ctx context.Context, s *stock, note func(string, float64)) (err error) {
	defer try.Catch(&err)
	if b.wants(rowResync) {
		cpu, memory, err := b.costOfResync(ctx, s)
		if err != nil {
			return fmt.Errorf("resync: %w", err)
		}
		note("resync", cpu)
		note("resident", memory)
	}
	if !b.needsNode() {
		return b.naiveRow(ctx, s, note)
	}
	answered := try.Get(s.timeToList(ctx))
	n := try.Get(startNode(ctx, b, s))
	defer n.process.Stop()
	note("list", answered.Seconds())
	note("start", n.started.Seconds())
	note("startover", (n.started - answered).Seconds())
	try.Do(measure.Pause(ctx, 2*time.Second))
	try.Do(n.noteMemory(note, "atstart"))
	try.Do(n.heap(ctx, b, "heap-"+s.size.name))
	looking := 0.0
	if b.wants(rowEndpoints) || b.wants(rowPorts) {
		if looking, err = costOfLooking(ctx, b, s, n); err != nil {
			return fmt.Errorf("looking: %w", err)
		}
		note("looking", looking)
	}
	if b.wants(rowEndpoints) {
		cpu, bare, reading, err := costOfEndpoints(ctx, b, s, n)
		if err != nil {
			return fmt.Errorf("endpoints: %w", err)
		}
		note("endpoints", cpu)
		note("bare", bare)
		note("reading", reading)
		note("endpointsnet", cpu-looking)
	}
	if b.wants(rowPorts) {
		cpu, behind, err := costOfPorts(ctx, b, s, n)
		if err != nil {
			return fmt.Errorf("ports: %w", err)
		}
		note("ports", cpu)
		note("portsnet", cpu-looking)
		noteTimes(note, "portsbehind", behind)
	}
	if b.wants(rowLatency) {
		behind, err := latencies(ctx, b, s, n, max(10, b.changes/5))
		if err != nil {
			return fmt.Errorf("latency: %w", err)
		}
		noteTimes(note, "behind", behind)
	}
	if b.wants(rowSaturated) {
		behind, rate, err := besideTraffic(ctx, b, s, n)
		if err != nil {
			return fmt.Errorf("saturated: %w", err)
		}
		noteTimes(note, "saturated", behind)
		note("traffic", rate)
	}
	try.Do(n.noteMemory(note, "atend"))
	note("goroutines", try.Get(n.goroutines(ctx)))
	note("descriptors", try.Get(measure.DescriptorsOf(n.pids)))
	n.process.Stop()
	return b.naiveRow(ctx, s, note)
}

// needsNode reports whether anything but resync, naive and churn is wanted.
func (b *bench) needsNode() bool {
	return slices.ContainsFunc([]string{rowStart, rowEndpoints, rowPorts, rowLatency, rowSaturated}, b.wants)
}

func (n *node) noteMemory(note func(string, float64), when string) (err error) {
	defer try.Catch(&err)
	note("anonymous"+when, try.Get(measure.AnonymousMemory(n.pids)))
	note("resident"+when, try.Get(measure.ResidentMemory(n.pids)))
	return nil
}

// timeToList gives how long etcd takes to answer a bare client that asks for everything.
func (s *stock) timeToList(ctx context.Context) (_ time.Duration, err error) {
	defer try.Catch(&err)
	c := try.Get(measure.NewEtcdClient(s.url))
	defer c.Close()
	began := time.Now()
	try.Get(c.Get(ctx, registry.Prefix, clientv3.WithPrefix()))
	return time.Since(began), nil
}

// costOfResync compares two processes on the same registry, of which one lists everything every half second
// and the other never: what the first uses more, for each list. It also gives the resident memory of the
// first.
func (b *bench) costOfResync(ctx context.Context, s *stock) (cpu, memory float64, err error) {
	defer try.Catch(&err)
	const window = 4 * time.Second
	used := func(period time.Duration) (cpu float64, resyncs int) {
		n := try.Get(startNode(ctx, b, s, fmt.Sprintf("-config_sync_period=%v", period)))
		defer n.process.Stop()
		try.Do(measure.Pause(ctx, time.Second))
		first, before := try.Get(n.resyncs(ctx)), try.Get(measure.CPUOf(n.pids))
		try.Do(measure.Pause(ctx, window))
		after, last := try.Get(measure.CPUOf(n.pids)), try.Get(n.resyncs(ctx))
		if period < time.Second {
			memory = try.Get(measure.ResidentMemory(n.pids))
		}
		return (after - before).Seconds(), last - first
	}
	often, resyncs := used(500 * time.Millisecond)
	never, none := used(time.Hour)
	if resyncs < 2 || none > 0 {
		return 0, 0, fmt.Errorf("there were %d resyncs in %v, and %d where there should be none", resyncs, window, none)
	}
	return (often - never) / float64(resyncs), memory, nil
}

// naiveRow gives what one change of endpoints costs who rebuilds everything.
func (b *bench) naiveRow(ctx context.Context, s *stock, note func(string, float64)) (err error) {
	defer try.Catch(&err)
	if !b.wants(rowNaive) {
		return nil
	}
	const changes = 30
	p := try.Get(b.Group.Start("naive", b.Executable, "naive", s.url))
	defer p.Stop()
	try.Do(p.Await(time.Minute, func() bool { return p.Said("ready") }))
	try.Do(measure.Pause(ctx, time.Second))
	before := try.Get(measure.CPUOf([]int{p.PID()}))
	for range changes {
		i := s.next()
		s.states[i].by = 1 - s.states[i].by
		try.Get(s.put(ctx, s.endpoints(registry.EndpointsPrefix, i)))
		try.Do(measure.Pause(ctx, 50*time.Millisecond))
	}
	try.Do(p.Await(time.Minute, func() bool { return p.Said(fmt.Sprintf("rebuilt %d\n", changes)) }))
	after, err := measure.CPUOf([]int{p.PID()})
	note("naive", (after-before).Seconds()/changes)
	return err
}
