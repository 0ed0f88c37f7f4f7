//go:build linux

package peers

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
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
	either  bool              // clients of either kind can do it
	written load.Clients      // how its clients and backends are
	bars    []bar
	measure func(context.Context, *bench, *proxy) (sample, error)
}

// column makes a metric.
var column = measure.Column

// What tables are made of.
type (
	metric = measure.Metric
	sample = measure.Sample
	bar    = measure.Bar
)

// What every row owes that is done by peers too: no less done, no later, and no more work for the machine
// as a whole, wherever it may hide, than with the best of them.
var (
	rateBesidePeers    = bar{Key: "rate", To: measure.BestPeer, Is: measure.AtLeast, Bar: 0.95, Aim: 1.05}
	p99BesidePeers     = bar{Key: "p99", To: measure.BestPeer, Bar: 1.1, Aim: 0.9}
	machineBesidePeers = bar{Key: "machine", To: measure.BestPeer, Bar: 1}
)

// withBars adds those to the bar that is a row's own.
func withBars(own bar) []bar { return []bar{own, rateBesidePeers, p99BesidePeers, machineBesidePeers} }

// beside gives the bars of a comparison of two kube-proxies: no figure is more than 3 % worse than that of the first one.
func beside(base string, metrics []metric) []bar {
	var bars []bar
	for _, m := range metrics {
		switch m.Key {
		case "rate", "bulk", "carried", "answered":
			bars = append(bars, bar{Key: m.Key, To: base, Is: measure.AtLeast, Bar: 0.97})
		case "cpu", "machine", "p50", "p99", "memory", "behind50", "behind99", "second":
			bars = append(bars, bar{Key: m.Key, To: base, Bar: 1.03})
		case "descriptors", "drops", "own", "goroutines":
			bars = append(bars, bar{Key: m.Key, To: base, Is: measure.NoMore})
		}
	}
	return bars
}

var perOperation = []metric{
	column("cpu", "CPU us/op", 1e6), column("machine", "machine us/op", 1e6), column("rate", "ops/s", 1),
	column("p50", "p50 us", 1e6), column("p99", "p99 us", 1e6),
}

var perByte = []metric{column("cpu", "CPU ms/GB", 1e12), column("machine", "machine ms/GB", 1e12), column("rate", "MB/s", 1e-6)}

var defaultRows = []string{"roundtrip-32", "connect-reset", "connect-fin", "bulk-4", "udp-32", "udp-256", "mixed", "idle"}

var moreRows = []string{"roundtrip-1", "roundtrip-512", "rate-50", "bulk-1", "bulk-2", "bulk-8", "udp-1000", "burst", "effect", "failing", "churn-tcp", "churn-udp"}

var numbered = regexp.MustCompile(`^(roundtrip|bulk|udp|rate)-([1-9][0-9]{0,3})$`)

// rowNamed makes a row of its name. Those with a number may have any.
func rowNamed(name string) (row, error) {
	r, ok := row{}, false
	if m := numbered.FindStringSubmatch(name); m != nil {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return row{}, err
		}
		r, ok = numberedRow(m[1], n), true
	} else {
		r, ok = plainRows()[name]
	}
	if !ok {
		return row{}, fmt.Errorf("there is no row %q", name)
	}
	r.name, r.written = name, load.Light
	return r, nil
}

// byGoroutines returns the row with clients and backends that are goroutines.
func (r row) byGoroutines() row {
	r.name += ", goroutines"
	r.title += "; clients and backends are goroutines"
	r.written = load.Goroutines
	return r
}

// numberedRow makes a row of n clients, or of n percent.
func numberedRow(kind string, n int) row {
	r := row{metrics: perOperation, either: kind == "roundtrip" || kind == "udp"}
	switch kind {
	case "roundtrip":
		r.title = fmt.Sprintf("64 B there and back, on %d TCP connections", n)
		r.measure = roundTrips(unix.SOCK_STREAM, n)
		r.bars = withBars(bar{Key: "cpu", To: "haproxy", Bar: 0.95, Aim: 0.80})
	case "udp":
		r.title = fmt.Sprintf("64 B there and back, over UDP by %d clients", n)
		r.measure = roundTrips(unix.SOCK_DGRAM, n)
		r.fits = func(p *proxy) bool { return p.udp }
		cpu := bar{Key: "cpu", To: "nginx", Bar: 0.80, Aim: 0.60}
		if n >= 256 { // then there is more in each batch
			cpu.Bar, cpu.Aim = 0.70, 0.50
		}
		r.bars = withBars(cpu)
	case "bulk":
		r.title = fmt.Sprintf("from backend to client, as much as there is room for, on %d connections", n)
		r.measure = bulk(n)
		r.metrics = perByte
		r.bars = withBars(bar{Key: "cpu", To: "haproxy", Bar: 0.65, Aim: 0.55})
	case "rate":
		r.title = fmt.Sprintf("64 B there and back, on 32 connections, %d %% of what direct carries is offered; times begin when a message was due", n)
		r.measure = fixedRate(n)
		r.metrics = append([]metric{column("carried", "carried", 1)}, perOperation...)
		r.bars = withBars(bar{Key: "cpu", To: "haproxy", Bar: 0.95, Aim: 0.80})
	}
	return r
}

// plainRows are those without a number.
func plainRows() map[string]row {
	through := func(p *proxy) bool { return !p.isDirect() }
	ours := func(p *proxy) bool { return p.ours }
	connecting := withBars(bar{Key: "cpu", To: "haproxy", Bar: 1.00, Aim: 0.90})
	leftBehind := []metric{column("began", "MB at first", 1e-6), column("first", "MB after", 1e-6), column("second", "MB after the second time", 1e-6), column("growth", "ratio of these", 1),
		column("descriptors", "more descriptors", 1), column("goroutines", "more goroutines", 1), column("rate", "a second", 1)}
	nothing := []bar{{Key: "growth", Bar: 1.05}, {Key: "descriptors", Worst: true}, {Key: "goroutines", Worst: true}}
	return map[string]row{
		"connect-reset": {title: "connect, 64 B there and back, reset; 32 at a time", metrics: perOperation, bars: connecting, measure: connects(false), either: true},
		"connect-fin":   {title: "connect, 64 B there and back, both sides finish; 32 at a time", metrics: perOperation, bars: connecting, measure: connects(true), either: true},
		"mixed": {title: "64 B there and back, on 32 connections, beside two bulk flows", metrics: []metric{
			column("p50", "p50 us", 1e6), column("p99", "p99 us", 1e6), column("rate", "ops/s", 1), column("bulk", "bulk MB/s", 1e-6), column("processors", "processors", 1)}, measure: mixed,
			bars: []bar{{Key: "p99", To: "haproxy", Bar: 1}, rateBesidePeers, {Key: "bulk", To: measure.BestPeer, Is: measure.AtLeast, Bar: rateBesidePeers.Bar, Aim: rateBesidePeers.Aim}}},
		"idle": {title: fmt.Sprintf("one more held connection, from %d to %d of them in a fresh process", fewHeld, manyHeld), metrics: []metric{
			column("memory", "bytes/connection", 1), column("descriptors", "descriptors/connection", 1)}, rounds: 3, takes: 7 * time.Second, fits: through, measure: idle,
			flags: []string{"-max_udp_sessions=1000"}, // by default a quarter of the descriptors is for them
			bars:  []bar{{Key: "memory", Bar: 400, Aim: 200}, {Key: "descriptors", Is: measure.Exactly, Bar: 2}}},
		"burst": {title: fmt.Sprintf("%d datagrams at once, from %d new clients; nothing is sent twice", burstClients*burstEach, burstClients), metrics: []metric{
			column("answered", "answered", 1), column("drops", "dropped at its sockets", 1), column("own", "dropped by it", 1), column("elsewhere", "dropped at backends", 1), column("lost", "lost otherwise", 1),
			column("cpu", "CPU us/answer", 1e6)}, takes: 3 * time.Second, fits: func(p *proxy) bool { return p.udp && !p.isDirect() }, measure: fireBurst,
			bars: []bar{{Key: "drops", To: "nginx", Is: measure.NoMore}, {Key: "own", Worst: true}}},
		"effect": {title: "a change of endpoints while 32 connections saturate: first datagram to the new endpoint, after a bare watcher beside it saw the event",
			metrics: []metric{column("behind50", "p50 ms", 1e3), column("behind99", "p99 ms", 1e3), column("put50", "after the put, p50 ms", 1e3), column("rate", "ops/s", 1), column("used", "% of the processors", 100)},
			longer:  effectRounds, fits: ours, measure: effect,
			bars: []bar{{Key: "behind99", Pool: true, Bar: 5}, {Key: "used", Is: measure.AtLeast, Bar: 95}}},
		"churn-tcp": {title: fmt.Sprintf("what %d short connections leave behind, and as many again", churnConnections), metrics: leftBehind, bars: nothing,
			rounds: 1, takes: 4 * time.Minute, flags: []string{"-profiling"}, fits: ours, measure: churnTCP},
		"churn-udp": {title: fmt.Sprintf("what %d UDP sessions leave behind, and as many again", churnSessions), metrics: leftBehind, bars: nothing,
			rounds: 1, takes: time.Minute, flags: churnFlags, fits: ours, measure: churnUDP},
		"failing": failingRow(ours),
	}
}

func failingRow(fits func(*proxy) bool) row {
	r := row{title: fmt.Sprintf("connect, 64 B there and back, reset; %d times, where one of three endpoints refuses, is silent, or is as well as the others", failingConnections),
		takes: 5 * time.Second, fits: fits, measure: failing}
	for i, s := range situations {
		r.metrics = append(r.metrics, column(s, s+": p99 us", 1e6), column("longest "+s, "longest ms", 1e3))
		if i > 0 {
			r.metrics = append(r.metrics, column(s+" ratio", s+" / healthy", 1))
			r.bars = append(r.bars, bar{Key: s + " ratio", Bar: 1.3})
		}
	}
	r.metrics = append(r.metrics, column("waited", "clients that met the silent one", 1))
	return r
}

func roundTrips(kind, n int) func(context.Context, *bench, *proxy) (sample, error) {
	return func(ctx context.Context, b *bench, p *proxy) (sample, error) {
		port := p.at.Echo
		if kind == unix.SOCK_DGRAM {
			port = p.at.UDP
		}
		return b.operationsOf(ctx, p, b.written.RoundTrips(kind, p.to(port), n))
	}
}

func (b *bench) operationsOf(ctx context.Context, p *proxy, l load.Load) (sample, error) {
	w, err := load.Conduct(ctx, p.pids, b.warm, b.measured, l)
	s := operations(w, l.Score())
	if b.written == load.Goroutines {
		delete(s.Values, measure.ClientsBusy) // they have no thread of their own
	}
	return s, err
}

func connects(fin bool) func(context.Context, *bench, *proxy) (sample, error) {
	return func(ctx context.Context, b *bench, p *proxy) (sample, error) {
		return b.operationsOf(ctx, p, b.written.Connections(p.to(p.at.Echo), clients, fin))
	}
}

func bulk(n int) func(context.Context, *bench, *proxy) (sample, error) {
	return func(ctx context.Context, b *bench, p *proxy) (sample, error) {
		l := load.NewBulk(p.to(p.at.Bulk), n)
		w, err := load.Conduct(ctx, p.pids, b.warm, b.measured, l)
		return operations(w, &l.Counters), err
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
		s := operations(w, &l.Counters)
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
	s := operations(w, &l.Counters)
	s.Fail(other.Failed, other.Why)
	delete(s.Values, "machine")
	delete(s.Values, "cpu")
	s.Values["bulk"] = w.Done[1] / w.Elapsed.Seconds()
	if !p.isDirect() {
		s.Values["processors"] = w.ProxyCPU.Seconds() / w.Elapsed.Seconds()
	}
	return s, nil
}

// operations makes a sample of what the first load did in a window.
func operations(w load.Window, t *load.Counters) sample {
	s := sample{Values: make(map[string]float64)}
	s.Fail(t.Failed, t.Why)
	if len(w.Done) == 0 || w.Done[0] == 0 {
		if s.Failed == 0 {
			s.Fail(1, "nothing was done")
		}
		return s
	}
	s.Values["rate"] = w.Done[0] / w.Elapsed.Seconds()
	s.Values[measure.ClientsBusy] = w.Clients.Seconds() / w.Elapsed.Seconds() / float64(len(w.Done))
	s.Values["machine"] = w.Busy.Seconds() / w.Done[0]
	if w.ProxyCPU > 0 {
		s.Values["cpu"] = w.ProxyCPU.Seconds() / w.Done[0]
	}
	if t.Latency.Count > 0 {
		s.Values["p50"], s.Values["p99"] = t.Latency.Quantile(0.50), t.Latency.Quantile(0.99)
	}
	return s
}

// How many connections are held, at first and in the end: fewer than 95 % of those that the descriptor limit allows, for the last ones are for other services.
const (
	fewHeld  = 1000
	manyHeld = 8500
)

// idle relies on a new process: in one that has been busy, memory that was freed would be used again,
// and new connections would seem to cost nothing.
func idle(ctx context.Context, b *bench, p *proxy) (sample, error) {
	if need := 2*manyHeld + 500; b.Descriptors < need {
		return sample{}, fmt.Errorf("needs a descriptor limit of %d, and has %d (ulimit -n)", need, b.Descriptors)
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

func fireBurst(ctx context.Context, b *bench, p *proxy) (_ sample, err error) {
	defer try.Catch(&err)
	backends := []int{b.backends.PID()}
	var drops, elsewhere [2]float64
	var cpu [2]time.Duration
	var sent, answered int
	for i := range 2 {
		var err error
		drops[i] = try.Get(kernelDrops(p.pids))
		elsewhere[i] = try.Get(kernelDrops(backends))
		cpu[i] = try.Get(measure.CPUOf(p.pids))
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
		s.Values["own"] = all.Sum(dropped) - all.Sum(dropped, "reason", "queue_full") // those are the kernel's
	}
	if answered > 0 {
		s.Values["cpu"] = (cpu[1] - cpu[0]).Seconds() / float64(answered)
	}
	return s, nil
}
