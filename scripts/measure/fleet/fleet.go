//go:build linux

// Package fleet measures what many nodes and one etcd cost each other.
//
// It starts an etcd, fills it with services, and starts as many kube-proxies as it is told, each a
// process with an address of its own, that all offer all of the services. Then it does to them what
// happens to a fleet: all start at once, nothing happens, one record changes, everything is read anew,
// etcd is killed. Of each it tells what it cost etcd, and how long it took until the last node was there.
//
// More nodes than a machine has room for are measured by their sources alone (config/etcdsource): to
// etcd they are the same. Sources of another kind (config/apisource) follow an API server in between, which keeps all in memory and has one watch.
// docs/scale.md tells what came of it.
package fleet

import (
	"context"
	"fmt"
	"os"
	"slices"

	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// Roles are what the processes do that it starts.
var Roles = map[string]measure.Role{
	"sources":    func(args []string) error { return runSources(args[0]) },
	"api-server": func(args []string) error { return runAPIServer(args[0], args[1]) },
}

// Parse reads the command line.
func Parse(args []string) (measure.Options, func(context.Context, *measure.Site) error, error) {
	o, err := parseOptions(args)
	return o.Options, o.run, err
}

func (o options) run(ctx context.Context, site *measure.Site) (err error) {
	defer try.Catch(&err)
	busy := try.Get(measure.BusyNow(ctx))
	site.Report.Begin(os.Stdout, busy, fmt.Sprintf("%d services with %d endpoints each", o.services, o.endpoints))
	l := try.Get(newLab(ctx, o, site))
	defer l.close()
	return l.measure(ctx, func(t *measure.Table) error {
		t.Summarise()
		t.PrintLines(os.Stdout)
		return site.Report.Add(t, o.JSON)
	})
}

// table makes the table of a step: a line for each figure, as many values as there were rounds.
func table(fleet, way, step, about string) *measure.Table {
	name := fmt.Sprintf("%s, %s, %s", fleet, way, step)
	return measure.NewTable(name, about, nil, measure.Subject{Name: fleet})
}

// record adds a value of a figure to the first round that has none.
func record(t *measure.Table, name, unit string, value float64) {
	if !slices.ContainsFunc(t.Metrics, func(m measure.Metric) bool { return m.Key == name }) {
		t.Metrics = append(t.Metrics, measure.Column(name, name+": "+unit, 1))
	}
	subject := t.Subjects[0].Name
	for _, s := range t.Samples[subject] {
		if _, ok := s.Values[name]; !ok {
			s.Values[name] = value
			return
		}
	}
	t.Samples[subject] = append(t.Samples[subject], measure.Sample{Values: map[string]float64{name: value}})
}
