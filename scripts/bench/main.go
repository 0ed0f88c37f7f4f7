//go:build linux

// Bench measures kube-proxy beside other proxies, on the same machine at the same time.
//
//	bench [-all | -only=ROW,...] [-rounds=N] [-self='NAME=FLAGS;...'] [-peers=NAME,...] [-judge] [-json=FILE]
//
// It starts backends, an etcd, kube-proxy, HAProxy and nginx, each as processes of their own, and is
// itself the clients. In every round each proxy does the same work for a moment, in random order; what
// is compared is two proxies within one round, so what the rest of the machine does meanwhile matters
// little. docs/performance.md tells what each row means; -h lists them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/ownnet"
)

// A bench is what the rows share.
type bench struct {
	rounds      int
	warm        time.Duration
	measured    time.Duration
	random      *rand.Rand
	descriptors int
	divisor     int // of how many connections, sessions and datagrams some rows are made of

	ps         *measure.Processes
	executable string // ourselves
	backends   *measure.Process
	behind     load.Ports // of the backends
	etcdURL    string
	etcd       *clientv3.Client
	proxies    []*proxy

	directRate float64          // see fixedRate
	watcher    *measure.Process // see effect
	stampedBy  int              // the backend behind the stamp service
	failing    uint16           // the first of the ports of the services that have an endpoint that fails
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "backends" { // we started ourselves
		exit(load.RunBackends(os.Args[2]))
	}
	if len(os.Args) > 3 && os.Args[1] == "watcher" {
		exit(measure.RunWatcher(os.Args[2], os.Args[3]))
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
		fmt.Fprintf(os.Stderr, "bench: %v (see bench -h)\n", err)
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	// The clients allocate next to nothing once they run; let them not collect what there is.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(1 << 30)
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	b := &bench{rounds: o.rounds, warm: o.warm, measured: o.time, divisor: o.fewer, random: rand.New(rand.NewPCG(o.seed, 0)), ps: &measure.Processes{Dir: dir}}
	defer func() { err = errors.Join(err, b.ps.Stop()) }()
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("not done after %v", o.limit))
	defer cancel()
	if err := b.prepare(ctx, o); err != nil {
		return err
	}
	return b.measure(ctx, o)
}

// prepare starts everything and waits until all of it answers.
func (b *bench) prepare(ctx context.Context, o options) error {
	var err error
	if b.executable, err = os.Executable(); err != nil {
		return err
	}
	if b.descriptors, err = measure.RaiseDescriptorLimit(); err != nil {
		return err
	}
	base, err := measure.FreePorts(netip.IPv4Unspecified(), 13+len(situations))
	if err != nil {
		return err
	}
	b.behind = load.PortsFrom(base)
	forPeers, offered := load.PortsFrom(base+4), load.PortsFrom(base+8)
	if b.backends, err = load.StartBackends(b.ps, b.executable, base); err != nil {
		return err
	}
	if b.etcdURL, err = measure.StartEtcd(b.ps, o.etcd); err != nil {
		return err
	}
	if b.etcd, err = measure.NewEtcdClient(b.etcdURL); err != nil {
		return err
	}
	if err := putServices(ctx, b.etcd, offered, b.behind); err != nil {
		return fmt.Errorf("put the services: %w", err)
	}
	if err := b.offerFailing(ctx, base+13, base+12); err != nil {
		return fmt.Errorf("put services with endpoints that fail: %w", err)
	}

	wanted := func(name string) bool { return o.peers == nil || slices.Contains(o.peers, name) }
	if wanted("direct") {
		b.proxies = append(b.proxies, direct(b.behind))
	}
	for i, peer := range []struct {
		name string
		make func(*measure.Processes, netip.Addr, load.Ports, load.Ports, int) (*proxy, error)
	}{{"haproxy", haproxy}, {"nginx", nginx}} {
		if !wanted(peer.name) {
			continue
		}
		p, err := peer.make(b.ps, proxyHost(i), forPeers, b.behind, b.descriptors)
		if err != nil {
			fmt.Printf("without %s in every row: %v (bench -h tells what to install)\n", peer.name, err)
			continue
		}
		b.proxies = append(b.proxies, p)
	}
	for i, v := range o.variants {
		p, err := kubeProxy(b.ps, v, o.binary, proxyHost(2+i), offered, b.etcdURL)
		if err != nil {
			return err
		}
		b.proxies = append(b.proxies, p)
	}
	for _, p := range b.proxies {
		if err := p.start(); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// measure does the rows, one after the other, and prints what each has found.
func (b *bench) measure(ctx context.Context, o options) error {
	out := report{Machine: measure.Machine(), Rounds: b.rounds, Measured: b.measured.Seconds(), Seed: o.seed}
	fmt.Printf("%s\n", out.Machine)
	for _, p := range b.proxies {
		if !p.isDirect() {
			out.Versions = append(out.Versions, fmt.Sprintf("%s (%s): %s", p.name, version(p.cmd[0]), strings.Join(p.cmd, " ")))
			fmt.Println(" ", out.Versions[len(out.Versions)-1])
		}
	}
	busy, err := measure.BusyNow(ctx)
	if err != nil {
		return err
	}
	out.Idle = busy
	fmt.Printf("%d rounds, seed %d, about %v; before it begins %.0f %% of the processors are in use\n", b.rounds, o.seed, b.estimate(o.rows).Round(time.Second), 100*busy)
	if busy > 0.05 {
		fmt.Println("WARNING: others are at work on this machine: the ratios will spread, and the absolute figures mean little")
	}
	invalid := 0
	for _, r := range o.rows {
		found, err := b.measureRow(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		found.judge(r.bars, b.fitting(r))
		found.print(os.Stdout)
		if len(found.Invalid) > 0 {
			invalid++
		}
		out.Rows = append(out.Rows, found)
		if o.json != "" { // after every row, so that what is known is not lost
			if err := out.write(o.json); err != nil {
				return err
			}
		}
	}
	short := printJudgements(os.Stdout, out.Rows)
	switch {
	case invalid > 0:
		return fmt.Errorf("%d of %d rows are invalid", invalid, len(o.rows))
	case o.judge && short > 0:
		return fmt.Errorf("%d bars are not reached", short)
	}
	return nil
}

// fitting gives those who can do a row.
func (b *bench) fitting(r row) []*proxy {
	return slices.DeleteFunc(slices.Clone(b.proxies), func(p *proxy) bool { return r.fits != nil && !r.fits(p) })
}

// pause lies between two measurements, so that what one leaves behind is over when the next begins.
const pause = 50 * time.Millisecond

// toRestart is about how long it takes until a new process is ready.
const toRestart = 150 * time.Millisecond

// measureRow has each proxy do the work in every round, each time in a new process: where a process
// happens to lie in memory makes it faster or slower for as long as it lives, and no number of rounds
// would show that it was luck.
func (b *bench) measureRow(ctx context.Context, r row) (rowReport, error) {
	proxies := b.fitting(r)
	rounds := b.rounds
	if r.rounds > 0 {
		rounds = min(rounds, r.rounds)
	}
	samples := make(map[string][]sample)
	for range rounds {
		for _, i := range b.random.Perm(len(proxies)) {
			p := proxies[i]
			debug.FreeOSMemory() // what the last one left
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return rowReport{}, context.Cause(ctx)
			}
			var s sample
			err := p.restart(r.flags...)
			if err == nil {
				s, err = r.measure(ctx, b, p)
			}
			if ctx.Err() != nil {
				return rowReport{}, context.Cause(ctx)
			}
			if err != nil { // the row is spoilt, the others may not be
				s.Failed, s.Why = s.Failed+1, err.Error()
			}
			samples[p.name] = append(samples[p.name], s)
		}
	}
	return summarise(r, proxies, samples), nil
}

// fewer is how many there are of something of which there are n, unless it is only to be tried out.
func (b *bench) fewer(n int) int { return max(1, n/max(1, b.divisor)) }

// estimate says how long it will take.
func (b *bench) estimate(rows []row) time.Duration {
	var total time.Duration
	for _, r := range rows {
		rounds, takes := b.rounds, b.warm+time.Duration(max(1, r.longer))*b.measured
		if r.rounds > 0 {
			rounds = min(rounds, r.rounds)
		}
		if r.takes > 0 {
			takes = r.takes
		}
		total += time.Duration(rounds*len(b.fitting(r))) * (takes + pause + toRestart)
	}
	return total
}

// version asks a program for its version: the first line of what it says.
func version(binary string) string {
	for _, flag := range []string{"-v", "-version"} {
		if strings.HasSuffix(binary, "kube-proxy") {
			flag = "-version"
		}
		if text, err := exec.Command(binary, flag).CombinedOutput(); err == nil {
			line, _, _ := strings.Cut(string(text), "\n")
			return line
		}
	}
	return "version unknown"
}
