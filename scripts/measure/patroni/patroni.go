//go:build linux

// Package patroni measures what a client of a PostgreSQL cluster under Patroni notices when its primary changes: through kube-proxy, which follows
// the leader's key or asks each member, and through HAProxy, which asks each member. docs/patroni.md says what the figures mean.
//
// The cluster is real: three members of Debian's packages, and an etcd. Each sample is one change, under one client that commits all the time.
package patroni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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

var columns = []measure.Metric{
	measure.Column("gap", "longest time without a commit, ms", 1e3),
	measure.Column("key-to-commit", "from the new leader's key to the first commit, ms", 1e3),
	measure.Column("errors", "errors that the writer met", 1),
	measure.Column("longest", "longest wait for one answer, ms", 1e3),
	measure.Column("commits", "commits", 1),
	measure.Column("stale", "commits by the one before, after the new leader's key", 1),
}

// barsOf are the bars of an event on these paths. Only at a switchover there is always a server that takes writes, or the proxy knows that there is
// none: an old primary that is partitioned refuses writes before its key ends.
func barsOf(what string, paths []path) []measure.Bar {
	bars := []measure.Bar{{Key: "stale", Worst: true}}
	if what == switchover {
		bars = append(bars, measure.Bar{Key: "errors", Of: byAsking.subject.Name, Is: measure.AtMost, Bar: 5})
	}
	if slices.ContainsFunc(paths, func(p path) bool { return p.name == libpq.name }) {
		bars = append(bars, measure.Bar{Key: "key-to-commit", Of: byAsking.subject.Name, To: libpq.subject.Name, Is: measure.NoMore, Bar: 50})
	}
	return bars
}

// While etcd is away no primary changes.
var (
	awayColumns = slices.DeleteFunc(slices.Clone(columns), func(m measure.Metric) bool { return m.Key == "key-to-commit" || m.Key == "stale" })
	awayBars    = []measure.Bar{{Key: "errors", Worst: true}}
)

// A kind says how an event is measured.
type kind struct {
	title   string
	columns []measure.Metric
	bars    []measure.Bar
	cause   func(ctx context.Context, what string, by path) (measure.Sample, error)
}

func (o options) run(ctx context.Context, site *measure.Site) (err error) {
	defer try.Catch(&err)
	try.Do(prepareNode())
	etcd := try.Get(measure.StartEtcdAt(site.Group, o.Etcd, nodeIP))
	version := try.Get(exec.Command("patroni", "--version").CombinedOutput())
	site.Report.Versions = append(site.Report.Versions, strings.TrimSpace(string(version)))
	_, missing := exec.LookPath("haproxy")
	if missing != nil {
		fmt.Printf("without haproxy: %v\n", missing)
		o.paths = slices.DeleteFunc(o.paths, func(name string) bool { return strings.HasPrefix(name, haproxy.name) })
	}
	busy := try.Get(measure.BusyNow(ctx))
	site.Report.Begin(os.Stdout, busy, fmt.Sprintf("%d rounds, seed %d, ttl %d, loop_wait %d", o.Rounds, o.Seed, o.ttl, o.loopWait))
	c := try.Get(startCluster(ctx, site, etcd, o))
	defer c.end()
	try.Do(c.startProxies(ctx, o.Binary, missing == nil))
	for _, what := range o.events {
		paths := o.pathsOf(what)
		of := kind{titles[what], columns, barsOf(what, paths), c.change}
		if title := readerTitles[what]; title != "" {
			of = kind{title, readerColumns, readerBars, c.spoil}
		} else if what == away {
			of = kind{titles[what], awayColumns, awayBars, c.outage}
		}
		var subjects []measure.Subject
		for _, p := range paths {
			subjects = append(subjects, p.subject)
		}
		t := measure.NewTable(what, of.title, of.columns, subjects...)
		try.Do(site.Rounds(ctx, t, o.Rounds, func(ctx context.Context, i int) (measure.Sample, error) {
			return of.cause(ctx, what, paths[i])
		}))
		t.Judge(of.bars)
		t.Print(os.Stdout)
		try.Do(site.Report.Add(t, o.JSON))
	}
	return site.Report.Err(os.Stdout, func(v measure.Verdict) bool { return !v.Reached() })
}

// change has the primary change once, under a writer that takes a path.
func (c *cluster) change(ctx context.Context, what string, by path) (s measure.Sample, err error) {
	defer try.Catch(&err)
	old := try.Get(c.settled(ctx))
	w := startWriter(c.hosts(by)...)
	defer w.end()
	try.Do(measure.Pause(ctx, calm))
	leader := try.Get(c.awaitOther(ctx, old))
	undo := try.Get(c.cause(ctx, what, old))
	defer undo()
	var key elected
	select {
	case key = <-leader:
	case <-ctx.Done():
		return s, context.Cause(ctx)
	}
	fresh := c.member(key.name).ip
	for deadline := time.Now().Add(time.Minute); w.first(fresh).IsZero() && time.Now().Before(deadline); {
		try.Do(measure.Pause(ctx, 5*time.Millisecond))
	}
	try.Do(measure.Pause(ctx, calm))
	w.end()
	if w.first(fresh).IsZero() {
		s.Fail(1, "no commit by the new primary within a minute")
		return s, nil
	}
	s.Values = map[string]float64{"gap": w.gap().Seconds(), "key-to-commit": w.first(fresh).Sub(key.at).Seconds(), "errors": float64(w.errors),
		"longest": w.longest.Seconds(), "commits": float64(len(w.commits)), "stale": float64(w.after(key.at, old.ip))}
	return s, nil
}

// outage has etcd away for 20 s, under a writer that takes a path.
func (c *cluster) outage(ctx context.Context, _ string, by path) (s measure.Sample, err error) {
	defer try.Catch(&err)
	leader := try.Get(c.settled(ctx))
	try.Do(ask(ctx, leader, "PATCH", "/config", `{"failsafe_mode":true}`, nil))
	defer func() { err = errors.Join(err, ask(ctx, leader, "PATCH", "/config", `{"failsafe_mode":null}`, nil)) }()
	try.Do(c.heard(ctx, time.Now()))
	w := startWriter(c.hosts(by)...)
	defer w.end()
	try.Do(measure.Pause(ctx, calm))
	c.server.Kill()
	try.Do(measure.Pause(ctx, 20*time.Second))
	try.Do(c.server.Start())
	try.Do(measure.Pause(ctx, time.Duration(c.ttl)*time.Second))
	w.end()
	s.Values = map[string]float64{"gap": w.gap().Seconds(), "errors": float64(w.errors), "longest": w.longest.Seconds(), "commits": float64(len(w.commits))}
	return s, nil
}
