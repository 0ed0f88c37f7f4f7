//go:build linux

package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
)

// A row is one kind of work, done by every proxy in every round.
type row struct {
	name    string
	title   string
	metrics []metric
	rounds  int               // 0: as many as asked for
	takes   time.Duration     // by one proxy in one round; 0: as long as the others
	longer  int               // how many times as long as others it is measured; 0: once
	fits    func(*proxy) bool // nil: every proxy can do it
	flags   []string          // more of them for each kube-proxy, while it lasts
	bars    []bar
	measure func(context.Context, *bench, *proxy) (sample, error)
}

// A metric is a column.
type metric struct {
	key   string
	title string
	scale float64 // from seconds, bytes or a plain number to what the title says
}

// A sample is what one proxy did in one round.
type sample struct {
	Values map[string]float64 `json:"values"`         // by the keys of metrics; what cannot be had is missing
	Pool   []float64          `json:"pool,omitempty"` // single figures, for quantiles over all rounds
	Failed int                `json:"failed"`
	Why    string             `json:"why,omitempty"` // the first failure
}

func (s *sample) count(t *load.Tally) {
	if s.Failed == 0 {
		s.Why = t.Why
	}
	s.Failed += t.Failed
}

var perOperation = []metric{
	{"cpu", "CPU us/op", 1e6}, {"machine", "machine us/op", 1e6}, {"rate", "ops/s", 1},
	{"p50", "p50 us", 1e6}, {"p99", "p99 us", 1e6},
}

var perByte = []metric{{"cpu", "CPU ms/GB", 1e12}, {"machine", "machine ms/GB", 1e12}, {"rate", "MB/s", 1e-6}}

var defaultRows = []string{"roundtrip-32", "connect-reset", "connect-fin", "bulk-4", "udp-32", "udp-256", "mixed", "idle"}

var moreRows = []string{"roundtrip-1", "roundtrip-512", "rate-50", "bulk-1", "bulk-2", "bulk-8", "udp-1000", "burst", "effect", "failing", "churn-tcp", "churn-udp"}

var numbered = regexp.MustCompile(`^(roundtrip|bulk|udp|rate)-([1-9][0-9]{0,3})$`)

// rowNamed makes a row of its name. Those with a number may have any.
func rowNamed(name string) (row, error) {
	if m := numbered.FindStringSubmatch(name); m != nil {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return row{}, err
		}
		r := row{name: name, metrics: perOperation}
		switch m[1] {
		case "roundtrip":
			r.title = fmt.Sprintf("64 B there and back, on %d TCP connections", n)
			r.measure = roundTrips(unix.SOCK_STREAM, n)
			r.bars = withBars(bar{key: "cpu", to: "haproxy", bar: 0.95, aim: 0.80})
		case "udp":
			r.title = fmt.Sprintf("64 B there and back, over UDP by %d clients", n)
			r.measure = roundTrips(unix.SOCK_DGRAM, n)
			r.fits = func(p *proxy) bool { return p.udp }
			cpu := bar{key: "cpu", to: "nginx", bar: 0.80, aim: 0.60}
			if n >= 256 { // then there is more in each batch
				cpu.bar, cpu.aim = 0.70, 0.50
			}
			r.bars = withBars(cpu)
		case "bulk":
			r.title = fmt.Sprintf("from backend to client, as much as there is room for, on %d connections", n)
			r.measure = bulk(n)
			r.metrics = perByte
			r.bars = withBars(bar{key: "cpu", to: "haproxy", bar: 0.65, aim: 0.55})
		case "rate":
			r.title = fmt.Sprintf("64 B there and back, on 32 connections, %d %% of what direct carries is offered; times begin when a message was due", n)
			r.measure = fixedRate(n)
			r.metrics = append([]metric{{"carried", "carried", 1}}, perOperation...)
			r.bars = withBars(bar{key: "cpu", to: "haproxy", bar: 0.95, aim: 0.80})
		}
		return r, nil
	}
	through := func(p *proxy) bool { return !p.isDirect() }
	ours := func(p *proxy) bool { return p.ours }
	connecting := withBars(bar{key: "cpu", to: "haproxy", bar: 1.00, aim: 0.90})
	leftBehind := []metric{{"began", "MB at first", 1e-6}, {"first", "MB after", 1e-6}, {"second", "MB after the second time", 1e-6}, {"growth", "ratio of these", 1},
		{"descriptors", "more descriptors", 1}, {"goroutines", "more goroutines", 1}, {"rate", "a second", 1}}
	nothing := []bar{{key: "growth", bar: 1.05, aim: 1.05}, {key: "descriptors", bar: 0, aim: 0}, {key: "goroutines", bar: 0, aim: 0}}
	switch name {
	case "connect-reset":
		return row{name: name, title: "connect, 64 B there and back, reset; 32 at a time", metrics: perOperation, bars: connecting, measure: connects(false)}, nil
	case "connect-fin":
		return row{name: name, title: "connect, 64 B there and back, both sides finish; 32 at a time", metrics: perOperation, bars: connecting, measure: connects(true)}, nil
	case "mixed":
		return row{name: name, title: "64 B there and back, on 32 connections, beside two bulk flows", metrics: []metric{
			{"p50", "p50 us", 1e6}, {"p99", "p99 us", 1e6}, {"rate", "ops/s", 1}, {"bulk", "bulk MB/s", 1e-6}, {"cpu", "processors", 1}}, measure: mixed,
			bars: []bar{{key: "p99", to: "haproxy", bar: 1, aim: 1}, rateBesidePeers, {key: "bulk", to: bestPeer, is: atLeast, bar: rateBesidePeers.bar, aim: rateBesidePeers.aim}}}, nil
	case "idle":
		return row{name: name, title: fmt.Sprintf("one more held connection, from %d to %d of them in a fresh process", fewHeld, manyHeld), metrics: []metric{
			{"memory", "bytes/connection", 1}, {"descriptors", "descriptors/connection", 1}}, rounds: 3, takes: 7 * time.Second, fits: through, measure: idle,
			flags: []string{"-max_udp_sessions=1000"}, // by default a quarter of the descriptors is for them
			bars:  []bar{{key: "memory", bar: 400, aim: 200}, {key: "descriptors", is: exactly, bar: 2, aim: 2}}}, nil
	case "burst":
		return row{name: name, title: fmt.Sprintf("%d datagrams at once, from %d new clients; nothing is sent twice", burstClients*burstEach, burstClients), metrics: []metric{
			{"answered", "answered", 1}, {"drops", "dropped at its sockets", 1}, {"own", "dropped by it", 1}, {"elsewhere", "dropped at backends", 1}, {"lost", "lost otherwise", 1},
			{"cpu", "CPU us/answer", 1e6}}, takes: 3 * time.Second, fits: func(p *proxy) bool { return p.udp && !p.isDirect() }, measure: fireBurst,
			bars: []bar{{key: "drops", to: "nginx", is: noMore}, {key: "own", bar: 0}}}, nil
	case "effect":
		return row{name: name, title: "a change of endpoints while 32 connections saturate: first datagram to the new endpoint, after a bare watcher beside it saw the event",
			metrics: []metric{{"behind50", "p50 ms", 1e3}, {"behind99", "p99 ms", 1e3}, {"put50", "after the put, p50 ms", 1e3}, {"rate", "ops/s", 1}, {"used", "% of the processors", 100}},
			longer:  effectRounds, fits: ours, measure: effect,
			bars: []bar{{key: "behind99", pool: true, bar: 5, aim: 5}, {key: "used", is: atLeast, bar: 95, aim: 95}}}, nil
	case "failing":
		r := row{name: name, title: fmt.Sprintf("connect, 64 B there and back, reset; %d times, where one of three endpoints refuses, is silent, or is as well as the others", failingConnections),
			takes: 5 * time.Second, fits: ours, measure: failing}
		for i, s := range situations {
			r.metrics = append(r.metrics, metric{s, s + ": p99 us", 1e6}, metric{"longest " + s, "longest ms", 1e3})
			if i > 0 {
				r.metrics = append(r.metrics, metric{s + " ratio", s + " / healthy", 1})
				r.bars = append(r.bars, bar{key: s + " ratio", bar: 1.3, aim: 1.3})
			}
		}
		r.metrics = append(r.metrics, metric{"waited", "clients that met the silent one", 1})
		return r, nil
	case "churn-tcp":
		return row{name: name, title: fmt.Sprintf("what %d short connections leave behind, and as many again", churnConnections), metrics: leftBehind, bars: nothing,
			rounds: 1, takes: 4 * time.Minute, flags: []string{"-profiling"}, fits: ours, measure: churnTCP}, nil
	case "churn-udp":
		return row{name: name, title: fmt.Sprintf("what %d UDP sessions leave behind, and as many again", churnSessions), metrics: leftBehind, bars: nothing,
			rounds: 1, takes: time.Minute, flags: churnFlags, fits: ours, measure: churnUDP}, nil
	}
	return row{}, fmt.Errorf("there is no row %q", name)
}

// clients is how many there are where a row's name does not say.
const clients = 32

func roundTrips(kind, n int) func(context.Context, *bench, *proxy) (sample, error) {
	return func(ctx context.Context, b *bench, p *proxy) (sample, error) {
		port := p.at.Echo
		if kind == unix.SOCK_DGRAM {
			port = p.at.UDP
		}
		l := load.NewEcho(kind, p.to(port), n)
		w, err := load.Conduct(ctx, p.pids, b.warm, b.measured, l)
		return operations(w, &l.Tally), err
	}
}

func connects(fin bool) func(context.Context, *bench, *proxy) (sample, error) {
	return func(ctx context.Context, b *bench, p *proxy) (sample, error) {
		l := load.NewConnect(p.to(p.at.Echo), clients, fin)
		w, err := load.Conduct(ctx, p.pids, b.warm, b.measured, l)
		return operations(w, &l.Tally), err
	}
}

func bulk(n int) func(context.Context, *bench, *proxy) (sample, error) {
	return func(ctx context.Context, b *bench, p *proxy) (sample, error) {
		l := load.NewBulk(p.to(p.at.Bulk), n)
		w, err := load.Conduct(ctx, p.pids, b.warm, b.measured, l)
		return operations(w, &l.Tally), err
	}
}

// fixedRate offers a share of what clients can do without a proxy, which is measured once.
func fixedRate(percent int) func(context.Context, *bench, *proxy) (sample, error) {
	return func(ctx context.Context, b *bench, p *proxy) (sample, error) {
		if b.directRate == 0 {
			l := load.NewEcho(unix.SOCK_STREAM, load.BackendsAt(b.behind.Echo), clients)
			w, err := load.Conduct(ctx, nil, b.warm, b.measured, l)
			if err != nil {
				return sample{}, err
			}
			b.directRate = w.Done[0] / w.Elapsed.Seconds()
		}
		l := load.NewEcho(unix.SOCK_STREAM, p.to(p.at.Echo), clients)
		l.Rate = b.directRate * float64(percent) / 100
		w, err := load.Conduct(ctx, p.pids, b.warm, b.measured, l)
		s := operations(w, &l.Tally)
		s.Values["carried"] = s.Values["rate"] / l.Rate
		return s, err
	}
}

// mixed measures round trips; the bulk flows are what disturbs them.
func mixed(ctx context.Context, b *bench, p *proxy) (sample, error) {
	l, other := load.NewEcho(unix.SOCK_STREAM, p.to(p.at.Echo), clients), load.NewBulk(p.to(p.at.Bulk), 2)
	w, err := load.Conduct(ctx, p.pids, b.warm, b.measured, l, other)
	if err != nil {
		return sample{}, err
	}
	s := operations(w, &l.Tally)
	s.count(&other.Tally)
	delete(s.Values, "machine")
	s.Values["bulk"] = w.Done[1] / w.Elapsed.Seconds()
	if !p.isDirect() {
		s.Values["cpu"] = w.ProxyCPU.Seconds() / w.Elapsed.Seconds()
	}
	return s, nil
}

// clientsBusy is no column: how much of a processor each thread of the clients used. Near 1 it is them
// that set the pace, and not who is measured.
const clientsBusy = "clients"

// operations makes a sample of what the first load did in a window.
func operations(w load.Window, t *load.Tally) sample {
	s := sample{Values: make(map[string]float64)}
	s.count(t)
	if len(w.Done) == 0 || w.Done[0] == 0 {
		if s.Failed == 0 {
			s.Failed, s.Why = 1, "nothing was done"
		}
		return s
	}
	s.Values["rate"] = w.Done[0] / w.Elapsed.Seconds()
	s.Values[clientsBusy] = w.Clients.Seconds() / w.Elapsed.Seconds() / float64(len(w.Done))
	s.Values["machine"] = w.Busy.Seconds() / w.Done[0]
	if w.ProxyCPU > 0 {
		s.Values["cpu"] = w.ProxyCPU.Seconds() / w.Done[0]
	}
	if t.Latency.Count > 0 {
		s.Values["p50"], s.Values["p99"] = t.Latency.Quantile(0.50), t.Latency.Quantile(0.99)
	}
	return s
}

// How many connections are held, at first and in the end.
const (
	fewHeld  = 1000
	manyHeld = 9000
)

// idle relies on a new process: in one that has been busy, memory that was freed would be used again,
// and new connections would seem to cost nothing.
func idle(ctx context.Context, b *bench, p *proxy) (sample, error) {
	if need := 2*manyHeld + 500; b.descriptors < need {
		return sample{}, fmt.Errorf("needs a descriptor limit of %d, and has %d (ulimit -n)", need, b.descriptors)
	}
	var held load.Crowd
	defer held.Disperse()
	var memory, descriptors [2]float64
	for i, n := range [2]int{fewHeld, manyHeld} {
		if err := held.Grow(ctx, p.to(p.at.Echo), n); err != nil {
			return sample{}, err
		}
		var err error
		memory[i], err = measure.Settle(ctx, 2*time.Second, func() (float64, error) { return measure.AnonymousMemory(p.pids) })
		if err == nil {
			descriptors[i], err = measure.DescriptorsOf(p.pids)
		}
		if err != nil {
			return sample{}, err
		}
	}
	const more = manyHeld - fewHeld
	return sample{Values: map[string]float64{
		"memory": (memory[1] - memory[0]) / more, "descriptors": (descriptors[1] - descriptors[0]) / more}}, nil
}

// The size of a burst.
const (
	burstClients = 1000
	burstEach    = 100
)

func fireBurst(ctx context.Context, b *bench, p *proxy) (sample, error) {
	backends := []int{b.backends.PID()}
	var drops, elsewhere [2]float64
	var cpu [2]time.Duration
	var sent, answered int
	for i := range 2 {
		var err error
		if drops[i], err = kernelDrops(p.pids); err != nil {
			return sample{}, err
		}
		if elsewhere[i], err = kernelDrops(backends); err != nil {
			return sample{}, err
		}
		if cpu[i], err = measure.CPUOf(p.pids); err != nil {
			return sample{}, err
		}
		if i == 0 {
			if sent, answered, err = (load.Burst{Clients: b.fewer(burstClients), Each: burstEach}).Fire(p.to(p.at.UDP)); err != nil {
				return sample{}, err
			}
		}
	}
	s := sample{Values: map[string]float64{
		"answered": float64(answered), "drops": drops[1] - drops[0], "elsewhere": elsewhere[1] - elsewhere[0]}}
	s.Values["lost"] = float64(sent-answered) - s.Values["drops"] - s.Values["elsewhere"]
	if p.ours {
		all, err := p.ask(ctx)
		if err != nil {
			return s, err
		}
		const dropped = "kubeproxy_udp_dropped_datagrams_total"
		s.Values["own"] = all.sum(dropped, "") - all.sum(dropped, `reason="queue_full"`) // those are the kernel's
	}
	if answered > 0 {
		s.Values["cpu"] = (cpu[1] - cpu[0]).Seconds() / float64(answered)
	}
	return s, nil
}
