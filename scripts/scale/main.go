//go:build linux

// Scale measures what kube-proxy spends on a change, a resync and a start when there are few services and
// when there are many, and what its clients notice when everything changes.
//
//	scale [-quick] [-only=ROW,...] [-sizes=SIZE,...] [-rounds=N] [-json=FILE]
//
// For each size there is an etcd that holds so many services. In every round a kube-proxy is started for each of
// them, in random order, and does everything once. docs/performance.md tells what each row means; -h lists them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/ownnet"
)

// A bench is what all rows share.
type bench struct {
	o          options
	ps         *measure.Processes
	etcds      []*measure.Processes // one in each
	executable string               // ourselves
	behind     load.Ports
	greets     uint16
	stocks     []*stock
	random     *rand.Rand
	out        *report
}

// errMissed is how a run ends that was sound, and found too much.
var errMissed = errors.New("bars are missed")

func main() {
	if len(os.Args) > 2 { // we started ourselves
		switch os.Args[1] {
		case "backends":
			exit(load.RunBackends(os.Args[2]))
		case "greeters":
			exit(runGreeters(os.Args[2]))
		case "naive":
			exit(runNaive(os.Args[2]))
		case "reader":
			exit(runReader(os.Args[2]))
		case "watcher":
			exit(measure.RunWatcher(os.Args[2], os.Args[3]))
		}
	}
	if o, err := parseOptions(os.Args[1:]); err == nil { // else run tells
		status, done, err := ownnet.Again(os.Args[1:], os.Stdout, os.Stderr, func() error {
			if o.etcd != "" {
				return nil
			}
			_, err := measure.EtcdBinary()
			return err
		})
		if err != nil {
			exit(err)
		}
		if done {
			os.Exit(status)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	exit(run(ctx, os.Args[1:]))
}

func exit(err error) {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.As(err, new(usageError)):
		fmt.Fprintf(os.Stderr, "scale: %v (see scale -h)\n", err)
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "scale:", err)
	os.Exit(1)
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	// We measure beside saturating traffic, some of which is ours: nothing of ours should wait for a turn.
	runtime.GOMAXPROCS(runtime.NumCPU() + 2)
	debug.SetGCPercent(400)
	dir, err := os.MkdirTemp("", "scale-")
	if err != nil {
		return err
	}
	b := &bench{o: o, ps: &measure.Processes{Dir: dir}, random: rand.New(rand.NewPCG(o.seed, 0))}
	defer func() {
		for _, ps := range b.etcds {
			err = errors.Join(err, ps.Stop())
		}
		err = errors.Join(err, b.ps.Stop())
	}()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	return b.measure(ctx)
}

// prepare starts everything but kube-proxy, and fills the etcds.
func (b *bench) prepare(ctx context.Context) error {
	var err error
	if b.executable, err = os.Executable(); err != nil {
		return err
	}
	descriptors, err := measure.RaiseDescriptorLimit()
	if err != nil {
		return err
	}
	if b.o.profile != "" {
		if err := os.MkdirAll(b.o.profile, 0o755); err != nil {
			return err
		}
		b.o.flags = append(b.o.flags, "-profiling")
	}
	base, err := measure.FreePorts(netip.IPv4Unspecified(), 6)
	if err != nil {
		return err
	}
	b.behind, b.greets = load.PortsFrom(base), base+4
	if _, err := load.StartBackends(b.ps, b.executable, base); err != nil {
		return err
	}
	greeters, err := b.ps.Start("greeters", b.executable, "greeters", strconv.Itoa(int(b.greets)))
	if err != nil {
		return err
	}
	if err := greeters.Await(10*time.Second, func() bool { return greeters.Said("ready") }); err != nil {
		return err
	}
	for _, size := range b.o.sizes {
		if size.services+1000 > descriptors {
			return fmt.Errorf("%d services need a descriptor limit of %d, and have %d (ulimit -n)", size.services, size.services+1000, descriptors)
		}
		s := &stock{size: size, behind: b.behind, greets: b.greets}
		own := &measure.Processes{Dir: filepath.Join(b.ps.Dir, size.name)} // of each there may be one etcd
		b.etcds = append(b.etcds, own)
		if err := os.Mkdir(own.Dir, 0o700); err != nil {
			return err
		}
		if s.url, err = measure.StartEtcd(own, b.o.etcd); err != nil {
			return err
		}
		if s.client, err = measure.NewEtcdClient(s.url); err != nil {
			return err
		}
		if err := s.fill(ctx); err != nil {
			return err
		}
		b.stocks = append(b.stocks, s)
	}
	return nil
}

// measure does all rounds, and those of the churn after them.
func (b *bench) measure(ctx context.Context) error {
	busy, err := measure.BusyNow(ctx)
	if err != nil {
		return err
	}
	b.out = newReport(b.o, busy)
	b.out.printHead(os.Stdout)
	for round := range b.o.rounds {
		for _, i := range b.random.Perm(len(b.stocks)) {
			s := b.stocks[i]
			began := time.Now()
			if err := b.once(ctx, s); err != nil {
				b.out.fail(fmt.Errorf("%s services, round %d: %w", s.size.name, round+1, err))
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			fmt.Printf("round %d, %s: %v\n", round+1, s.size.name, time.Since(began).Round(100*time.Millisecond))
		}
	}
	for round := 0; b.o.wants(rowChurn) && round < b.o.rounds; round++ {
		began := time.Now()
		if err := b.churn(ctx, b.stocks[b.out.churnAt()]); err != nil {
			b.out.fail(fmt.Errorf("churn, round %d: %w", round+1, err))
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		fmt.Printf("round %d, churn: %v\n", round+1, time.Since(began).Round(100*time.Millisecond))
	}
	b.out.judge()
	b.out.print(os.Stdout)
	if b.o.json != "" {
		if err := b.out.write(b.o.json); err != nil {
			return err
		}
	}
	if len(b.out.Failed) > 0 {
		return errors.New(b.out.Failed[0])
	}
	if n := b.out.missed(); n > 0 {
		return fmt.Errorf("%d %w", n, errMissed)
	}
	return nil
}

// once does every row once for one size.
func (b *bench) once(ctx context.Context, s *stock) error {
	note := func(key string, v float64) { b.out.note(s.size, key, v) }
	if b.o.wants(rowResync) {
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
	answered, err := s.timeToList(ctx)
	if err != nil {
		return err
	}
	n, err := startNode(ctx, b, s)
	if err != nil {
		return err
	}
	defer n.process.Stop()
	note("list", answered.Seconds())
	note("start", n.started.Seconds())
	note("startover", (n.started - answered).Seconds())
	if err := pause(ctx, 2*time.Second); err != nil {
		return err
	}
	if err := n.noteMemory(note, "atstart"); err != nil {
		return err
	}
	if err := n.heap(ctx, b, "heap-"+s.size.name); err != nil {
		return err
	}
	looking := 0.0
	if b.o.wants(rowEndpoints) || b.o.wants(rowPorts) {
		if looking, err = costOfLooking(ctx, b, s, n); err != nil {
			return fmt.Errorf("looking: %w", err)
		}
		note("looking", looking)
	}
	if b.o.wants(rowEndpoints) {
		cpu, bare, reading, err := costOfEndpoints(ctx, b, s, n)
		if err != nil {
			return fmt.Errorf("endpoints: %w", err)
		}
		note("endpoints", cpu)
		note("bare", bare)
		note("reading", reading)
		note("endpointsnet", cpu-looking)
	}
	if b.o.wants(rowPorts) {
		cpu, behind, err := costOfPorts(ctx, b, s, n)
		if err != nil {
			return fmt.Errorf("ports: %w", err)
		}
		note("ports", cpu)
		note("portsnet", cpu-looking)
		noteTimes(note, "portsbehind", behind)
	}
	if b.o.wants(rowLatency) {
		behind, err := latencies(ctx, b, s, n, max(10, b.o.changes/5))
		if err != nil {
			return fmt.Errorf("latency: %w", err)
		}
		noteTimes(note, "behind", behind)
	}
	if b.o.wants(rowSaturated) {
		behind, rate, err := besideTraffic(ctx, b, s, n)
		if err != nil {
			return fmt.Errorf("saturated: %w", err)
		}
		noteTimes(note, "saturated", behind)
		note("traffic", rate)
	}
	if err := n.noteMemory(note, "atend"); err != nil {
		return err
	}
	goroutines, err := n.goroutines(ctx)
	if err != nil {
		return err
	}
	note("goroutines", goroutines)
	descriptors, err := measure.DescriptorsOf(n.pids)
	if err != nil {
		return err
	}
	note("descriptors", descriptors)
	n.process.Stop()
	return b.naiveRow(ctx, s, note)
}

// needsNode tells whether anything but resync, naive and churn is wanted.
func (b *bench) needsNode() bool {
	for _, row := range []string{rowStart, rowEndpoints, rowPorts, rowLatency, rowSaturated} {
		if b.o.wants(row) {
			return true
		}
	}
	return false
}

func (n *node) noteMemory(note func(string, float64), when string) error {
	anonymous, err := measure.AnonymousMemory(n.pids)
	if err != nil {
		return err
	}
	resident, err := measure.ResidentMemory(n.pids)
	if err != nil {
		return err
	}
	note("anonymous"+when, anonymous)
	note("resident"+when, resident)
	return nil
}

// timeToList gives how long etcd takes to answer a bare client that asks for everything.
func (s *stock) timeToList(ctx context.Context) (time.Duration, error) {
	c, err := measure.NewEtcdClient(s.url)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	began := time.Now()
	if _, err := c.Get(ctx, registry.Prefix, clientv3.WithPrefix()); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// costOfResync compares two processes on the same registry, of which one lists everything every half second
// and the other never: what the first uses more, for each list. It also gives the resident memory of the
// first.
func (b *bench) costOfResync(ctx context.Context, s *stock) (cpu, memory float64, err error) {
	const window = 4 * time.Second
	used := func(period time.Duration) (cpu float64, resyncs int, err error) {
		n, err := startNode(ctx, b, s, fmt.Sprintf("-config_sync_period=%v", period))
		if err != nil {
			return 0, 0, err
		}
		defer n.process.Stop()
		if err := pause(ctx, time.Second); err != nil {
			return 0, 0, err
		}
		first, err := n.resyncs(ctx)
		if err != nil {
			return 0, 0, err
		}
		before, err := measure.CPUOf(n.pids)
		if err != nil {
			return 0, 0, err
		}
		if err := pause(ctx, window); err != nil {
			return 0, 0, err
		}
		after, err := measure.CPUOf(n.pids)
		if err != nil {
			return 0, 0, err
		}
		last, err := n.resyncs(ctx)
		if err != nil {
			return 0, 0, err
		}
		if period < time.Second {
			if memory, err = measure.ResidentMemory(n.pids); err != nil {
				return 0, 0, err
			}
		}
		return (after - before).Seconds(), last - first, nil
	}
	often, resyncs, err := used(500 * time.Millisecond)
	if err != nil {
		return 0, 0, err
	}
	never, none, err := used(time.Hour)
	switch {
	case err != nil:
		return 0, 0, err
	case resyncs < 2 || none > 0:
		return 0, 0, fmt.Errorf("there were %d resyncs in %v, and %d where there should be none", resyncs, window, none)
	}
	return (often - never) / float64(resyncs), memory, nil
}

// naiveRow gives what one change of endpoints costs who rebuilds everything.
func (b *bench) naiveRow(ctx context.Context, s *stock, note func(string, float64)) error {
	if !b.o.wants(rowNaive) {
		return nil
	}
	const changes = 30
	p, err := b.ps.Start("naive", b.executable, "naive", s.url)
	if err != nil {
		return err
	}
	defer p.Stop()
	if err := p.Await(time.Minute, func() bool { return p.Said("ready") }); err != nil {
		return err
	}
	if err := pause(ctx, time.Second); err != nil {
		return err
	}
	before, err := measure.CPUOf([]int{p.PID()})
	if err != nil {
		return err
	}
	for range changes {
		i := s.next()
		s.states[i].by = 1 - s.states[i].by
		if _, err := s.put(ctx, s.endpoints(registry.EndpointsPrefix, i)); err != nil {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	if err := p.Await(time.Minute, func() bool { return p.Said(fmt.Sprintf("rebuilt %d\n", changes)) }); err != nil {
		return err
	}
	after, err := measure.CPUOf([]int{p.PID()})
	note("naive", (after-before).Seconds()/changes)
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
