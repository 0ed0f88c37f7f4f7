//go:build linux

// Package peers measures kube-proxy beside other proxies, or beside itself, on the same machine at the same time.
//
// It starts backends, an etcd, kube-proxy, HAProxy and nginx, each as processes of their own, and is
// itself the clients. In every round each proxy does the same work for a moment, in random order; what
// is compared is two proxies within one round, so what the rest of the machine does meanwhile matters
// little. docs/performance.md tells what each row means.
package peers

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// Roles are what the processes do that it starts.
var Roles = map[string]measure.Role{
	"backends": func(args []string) error { return load.RunBackends(args) },
	"watcher":  func(args []string) error { return measure.RunWatcher(args[0], args[1]) },
}

// Parse reads the command line.
func Parse(args []string) (measure.Options, func(context.Context, *measure.Site) error, error) {
	o, err := parseOptions("peers", args)
	return o.Options, o.run, err
}

// ParseSelf reads the command line of the same without peers.
func ParseSelf(args []string) (measure.Options, func(context.Context, *measure.Site) error, error) {
	o, err := parseOptions("self", args)
	return o.Options, o.run, err
}

func (o options) run(ctx context.Context, site *measure.Site) error {
	// The clients allocate next to nothing once they run; let them not collect what there is.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(1 << 30)
	b := &bench{Site: site, options: o}
	defer func() {
		for _, p := range b.proxies {
			p.viewers.leave()
		}
	}()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	return b.measure(ctx)
}

// prepare starts everything and waits until all of it answers.
func (b *bench) prepare(ctx context.Context) (err error) {
	defer try.Catch(&err)
	base := try.Get(measure.FreePorts(13 + len(situations)))
	b.behind = load.PortsFrom(base)
	forPeers, offered := load.PortsFrom(base+4), load.PortsFrom(base+8)
	b.written = b.rows[0].written
	b.backends = try.Get(load.StartBackends(b.Group, b.Executable, base, b.written))
	etcd := try.Get(measure.StartEtcd(b.Group, b.Options.Etcd))
	b.etcdURL = etcd.URL()
	b.etcd = try.Get(measure.NewEtcdClient(b.etcdURL))
	if err := putServices(ctx, b.etcd, offered, b.behind); err != nil {
		return fmt.Errorf("put the services: %w", err)
	}
	if err := b.offerFailing(ctx, base+13, base+12); err != nil {
		return fmt.Errorf("put services with endpoints that fail: %w", err)
	}

	try.Do(b.addProxies(forPeers, offered))
	for _, p := range b.proxies {
		try.Do(p.start())
	}
	return context.Cause(ctx)
}

// addProxies makes the proxies that are wanted. A peer that is not installed is left out.
func (b *bench) addProxies(forPeers, offered load.Ports) error {
	wanted := func(name string) bool { return b.peers == nil || slices.Contains(b.peers, name) }
	if wanted("direct") {
		b.proxies = append(b.proxies, direct(b.behind))
	}
	for i, peer := range []struct {
		name string
		make func(*process.Group, netip.Addr, load.Ports, load.Ports, int) (*proxy, error)
	}{{"haproxy", haproxy}, {"nginx", nginx}} {
		if !wanted(peer.name) {
			continue
		}
		p, err := peer.make(b.Group, proxyHost(i), forPeers, b.behind, b.Descriptors)
		if err != nil {
			fmt.Printf("without %s in every row: %v (-h tells what to install)\n", peer.name, err)
			continue
		}
		b.proxies = append(b.proxies, p)
	}
	for i, v := range b.variants {
		p, err := kubeProxy(b.Group, v, b.Binary, proxyHost(2+i), offered, b.etcdURL)
		if err != nil {
			return err
		}
		b.proxies = append(b.proxies, p)
	}
	return nil
}

// measure does the rows, one after the other, and prints what each has found.
func (b *bench) measure(ctx context.Context) (err error) {
	defer try.Catch(&err)
	for _, p := range b.proxies {
		if !p.isDirect() {
			b.Report.Versions = append(b.Report.Versions, fmt.Sprintf("%s (%s): %s", p.name, version(p.cmd[0]), strings.Join(p.cmd, " ")))
		}
	}
	busy := try.Get(measure.BusyNow(ctx))
	b.Report.Begin(os.Stdout, busy, fmt.Sprintf("%d rounds, seed %d, about %v", b.Options.Rounds, b.Seed, b.estimate().Round(time.Second)))
	for _, r := range b.rows {
		if err := b.writtenAs(r.written); err != nil {
			return err
		}
		found, err := b.measureRow(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		bars := r.bars
		if b.base != "" {
			bars = beside(b.base, r.metrics)
		}
		found.Judge(bars)
		found.Print(os.Stdout)
		try.Do(b.Report.Add(found, b.Options.JSON))
	}
	return b.Report.Err(os.Stdout, func(v measure.Verdict) bool { return b.judge && !v.Reached() })
}

// writtenAs has backends that are written so.
func (b *bench) writtenAs(written load.Clients) (err error) {
	if written == b.written {
		return nil
	}
	b.backends.Stop()
	b.written = written
	b.backends, err = load.StartBackends(b.Group, b.Executable, b.behind.Echo, written)
	return err
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
func (b *bench) measureRow(ctx context.Context, r row) (*measure.Table, error) {
	proxies := b.fitting(r)
	t := measure.NewTable(r.name, r.title, r.metrics)
	for _, p := range proxies {
		t.Subjects = append(t.Subjects, p.subject())
	}
	return t, b.Rounds(ctx, t, b.roundsOf(r), func(ctx context.Context, i int) (sample, error) {
		debug.FreeOSMemory() // what the last one left
		if err := measure.Pause(ctx, pause); err != nil {
			return sample{}, err
		}
		if err := proxies[i].restart(r.flags...); err != nil {
			return sample{}, err
		}
		return r.measure(ctx, b, proxies[i])
	})
}

func (b *bench) roundsOf(r row) int {
	if r.rounds > 0 {
		return min(b.Options.Rounds, r.rounds)
	}
	return b.Options.Rounds
}

// estimate says how long it will take.
func (b *bench) estimate() time.Duration {
	var total time.Duration
	for _, r := range b.rows {
		takes := b.warm + time.Duration(max(1, r.longer))*b.measured
		if r.takes > 0 {
			takes = r.takes
		}
		total += time.Duration(b.roundsOf(r)*len(b.fitting(r))) * (takes + pause + toRestart)
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
