//go:build linux

// Package takeover measures what clients notice when a proxy is replaced by a new process many times in a row: kube-proxy with
// -takeover, and HAProxy by its reload. docs/performance.md says what the figures mean.
//
// Clients and backends live in this process, so that both ends of each stream can be compared.
package takeover

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// Parse reads the command line.
func Parse(args []string) (measure.Options, func(context.Context, *measure.Site) error, error) {
	o, err := parseOptions(args)
	return o.Options, o.run, err
}

func (o options) run(ctx context.Context, site *measure.Site) (err error) {
	defer try.Catch(&err)
	debug.SetGCPercent(1000) // a client that collects garbage would wait for itself
	b := &bench{Site: site, options: o, at: portsFrom(try.Get(measure.FreePorts(3)))}
	etcd := try.Get(measure.StartEtcd(b.Group, o.Etcd))
	b.etcdURL = etcd.URL()
	try.Do(b.putServices(ctx))

	subjects := []measure.Subject{{Name: ours, Ours: true}}
	if path, err := exec.LookPath("haproxy"); err != nil {
		fmt.Printf("without haproxy: %v\n", err)
	} else if o.haproxy {
		subjects = append(subjects, measure.Subject{Name: "haproxy", Peer: true}, measure.Subject{Name: hardStop, Peer: true})
		b.Report.Versions = append(b.Report.Versions, "haproxy ("+version(path, "-v")+"): -Ws, and a stats socket with expose-fd listeners")
	}
	b.Report.Versions = append(b.Report.Versions, "kube-proxy ("+version(o.Binary, "-version")+"): "+strings.Join(b.kubeProxyFlags(), " "))
	busy := try.Get(measure.BusyNow(ctx))
	b.Report.Begin(os.Stdout, busy, fmt.Sprintf("%d rounds, seed %d", o.Rounds, o.Seed))

	t := measure.NewTable("takeover", fmt.Sprintf("%d take-overs or reloads in a row, under %d TCP connections and %d UDP sessions", o.times, o.connections, o.sessions),
		columns, subjects...)
	try.Do(b.Rounds(ctx, t, o.Rounds, func(ctx context.Context, i int) (measure.Sample, error) { return b.measure(ctx, subjects[i].Name) }))
	t.Judge(bars)
	t.PrintLines(os.Stdout)
	try.Do(b.Report.Add(t, o.JSON))
	return b.Report.Err(os.Stdout, func(v measure.Verdict) bool { return !v.Reached() })
}

// version asks a program for its version: the first line of what it says.
func version(binary, flag string) string {
	text, err := exec.Command(binary, flag).CombinedOutput()
	if err != nil {
		return "version unknown"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// calm is how long the load is left alone before each take-over, and watched after it began. What clients wait in the first of these
// is what they wait without a take-over.
const calm = time.Second

// measure replaces one subject as often as is wanted, while it is under load.
func (b *bench) measure(ctx context.Context, name string) (_ measure.Sample, err error) {
	defer try.Catch(&err)
	p := try.Get(b.start(name))
	defer p.stop()
	first := try.Get(p.usage(ctx))
	l := newCrowd(b, name != ours)
	defer l.end()
	try.Do(l.begin(ctx, p.host))
	try.Do(measure.Pause(ctx, calm))

	var gone []<-chan time.Duration
	under, backwards := 0, 0
	for range b.times {
		l.window.Add(1)
		try.Do(measure.Pause(ctx, calm))
		before := try.Get(p.counters(ctx))
		under += int(l.dialling.Load())
		l.window.Add(1)
		began := time.Now()
		old := p.pid
		watch := try.Get(exitOf(old, began))
		try.Do(p.renew(ctx))
		gone = append(gone, watch)
		try.Do(measure.Pause(ctx, time.Until(began.Add(calm))))
		backwards += decreased(before, try.Get(p.counters(ctx)))
	}
	l.window.Add(1)
	try.Do(measure.Pause(ctx, calm))
	left, ages := 0, []float64{}
	for _, c := range gone {
		select {
		case age := <-c:
			ages = append(ages, age.Seconds())
		default:
			left++
		}
	}
	l.end()
	s := l.sample(name)
	s.Values["takeovers"] = float64(len(gone))
	s.Values["dials"] = float64(under) / float64(len(gone))
	s.Values["old"] = float64(left)
	if len(ages) > 0 {
		s.Values["gone"], s.Values["gone-worst"] = measure.SpreadOf(ages).Median, slices.Max(ages)
	}
	if name == ours {
		s.Values["backwards"] = float64(backwards)
		last := try.Get(p.usageBackAt(ctx, first))
		s.Values["descriptors"] = last.descriptors - first.descriptors
		s.Values["pipes"] = last.pipes - first.pipes
		s.Values["goroutines"] = last.goroutines - first.goroutines
	}
	return s, nil
}

// columns are what is found out, in the order of the table.
var columns = []measure.Metric{
	measure.Column("takeovers", "take-overs", 1),
	measure.Column("held", "TCP connections held through all of them", 1),
	measure.Column("sessions", "UDP sessions held through all of them", 1),
	measure.Column("dials", "dials under way at a take-over, on average", 1),
	measure.Column("newcomers", "new connections, each with a round trip", 1),
	measure.Column("checked", "MB checked", 1e-6),
	measure.Column("datagrams", "datagrams answered", 1),
	measure.Column("refused", "connections refused", 1),
	measure.Column("reset", "connections reset", 1),
	measure.Column("wrong", "connections with wrong bytes", 1),
	measure.Column("missing", "connections with missing bytes", 1),
	measure.Column("late", "no answer in time", 1),
	measure.Column("elsewhere", "datagrams answered by another endpoint or session", 1),
	measure.Column("lost", "datagrams without an answer", 1),
	measure.Column("backwards", "counters that went back", 1),
	measure.Column("descriptors", "descriptors more than at first, without pipes", 1),
	measure.Column("pipes", "descriptors of pipes more than at first", 1),
	measure.Column("goroutines", "goroutines more than at first", 1),
	measure.Column("old", "old processes left at the end", 1),
	measure.Column("gone", "until an old process is gone, median s", 1),
	measure.Column("gone-worst", "until an old process is gone, longest s", 1),
	measure.Column("calm50", "longest wait in a second of calm, p50 ms", 1e3),
	measure.Column("calm99", "the same, p99 ms", 1e3),
	measure.Column("calm-worst", "the same, worst ms", 1e3),
	measure.Column("pause50", "longest wait in the second of a take-over, p50 ms", 1e3),
	measure.Column("pause99", "the same, p99 ms", 1e3),
	measure.Column("pause-worst", "the same, worst ms", 1e3),
}

// bars are what kube-proxy has to reach. What may never happen may not happen in one round of many.
var bars = []measure.Bar{
	{Key: "refused", Worst: true}, {Key: "reset", Worst: true}, {Key: "wrong", Worst: true}, {Key: "missing", Worst: true}, {Key: "late", Worst: true},
	{Key: "elsewhere", Worst: true}, {Key: "lost", Worst: true}, {Key: "backwards", Worst: true},
	{Key: "descriptors", Worst: true}, {Key: "goroutines", Worst: true}, {Key: "old", Worst: true},
	{Key: "pause99", Bar: 50, Worst: true}, {Key: "pause-worst", Bar: 200, Worst: true},
}
