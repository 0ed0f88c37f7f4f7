//go:build linux

package scale

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"kubeproxy/scripts/internal/measure"
)

const about = `
Measures what a change, a resync and a start cost kube-proxy with 10, 1,000 and 10,000 services of 10 endpoints each,
and with 100 services of 1,000; then what its clients notice of 1,000 changes a second. It prints each value beside its
bar, and ends with exit status 1 where one is missed. Half an hour.

It needs a descriptor limit of 20,000 (ulimit -n) for 10,000 services, and no privileges. docs/performance.md tells what
each row means and how it is measured.
`

// The rows. Start and memory belong together: they are seen on the same process.
const (
	rowStart     = "start"     // from exec to all listening; memory, goroutines, descriptors
	rowResync    = "resync"    // CPU of one that finds nothing
	rowEndpoints = "endpoints" // CPU per change of endpoints
	rowPorts     = "ports"     // CPU per change of a port, and how long it takes
	rowLatency   = "latency"   // how long a change of endpoints takes
	rowSaturated = "saturated" // the same beside saturating traffic
	rowNaive     = "naive"     // CPU per change of endpoints, for who rebuilds everything
	rowChurn     = "churn"     // 1,000 changes a second
)

var rowNames = []string{rowStart, rowResync, rowEndpoints, rowPorts, rowLatency, rowSaturated, rowNaive, rowChurn}

// options is the command line.
type options struct {
	measure.Options
	rows    []string
	sizes   []size
	changes int
	churned int // seconds of churn
	flags   []string
	profile string
}

func (o *options) wants(row string) bool { return slices.Contains(o.rows, row) }

func (o *options) flagSet() *flag.FlagSet {
	f := o.FlagSet("scale", about, 5, 3*time.Hour)
	o.rows, o.sizes = rowNames, allSizes
	measure.List(f, "only", &o.rows, "just these `ROW,...` of "+strings.Join(rowNames, ","), measure.OneOf(rowNames...))
	measure.List(f, "sizes", &o.sizes, "just these `SIZE,...` of "+strings.Join(sizeNames(), ","), sizeNamed)
	f.IntVar(&o.changes, "changes", 1000, "how many `changes` of each kind in a round")
	f.IntVar(&o.churned, "churn", 60, "how many `seconds` there are 1,000 changes a second")
	f.StringVar(&o.profile, "profile", "", "put profiles of kube-proxy into this `DIR`: of its memory, and of its CPU while endpoints are changed")
	f.Func("flags", "more `FLAGS` for kube-proxy", func(text string) error {
		o.flags = strings.Fields(text)
		return nil
	})
	return f
}

func sizeNamed(name string) (size, error) {
	i := slices.IndexFunc(allSizes, func(s size) bool { return s.name == name })
	if i < 0 {
		return size{}, fmt.Errorf("there is no size %q", name)
	}
	return allSizes[i], nil
}

func parseOptions(args []string) (options, error) {
	var o options
	f := o.flagSet()
	quick := f.Bool("quick", false, "a look: one round, a tenth of the changes")
	if err := measure.Parse(f, args); err != nil {
		return o, err
	}
	if *quick {
		o.Rounds, o.changes, o.churned = 1, o.changes/10, o.churned/6
	}
	if o.Rounds < 1 || o.changes < 10 || o.churned < 2 {
		return o, measure.Usage("-rounds has to be at least 1, -changes 10, -churn 2 (with -quick -changes 100, -churn 12)")
	}
	return o, nil
}
