//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
)

const usage = `Usage: scale [flags]
Measures what a change, a resync and a start cost kube-proxy with 10, 1,000 and 10,000 services of 10 endpoints each,
and with 100 services of 1,000; then what its clients notice of 1,000 changes a second. It prints each value beside its
bar, and ends with exit status 1 where one is missed. Half an hour.
  -quick           a look: one round, a tenth of the changes
  -only=ROW,...    just these rows
  -sizes=SIZE,...  just these sizes: %s
  -rounds=N        how many rounds (default 5; from 6 on there is a 95 %% interval)
  -changes=N       how many changes of each kind in a round (default 1000)
  -churn=SECONDS   how long there are 1,000 changes a second (default 60)
  -binary=FILE     kube-proxy (default bin/kube-proxy)
  -flags=FLAGS     more flags for it
  -etcd=FILE       etcd (default: built from the module that go.mod names)
  -profile=DIR     put profiles of kube-proxy there: of its memory, and of its CPU while endpoints are changed
  -seed=N          of the order of sizes (default: another one each time)
  -json=FILE       write everything that was measured there, too
Rows: %s

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
	rows         []string
	sizes        []size
	rounds       int
	changes      int
	churn        int // seconds
	binary, etcd string
	flags        []string
	profile      string
	seed         uint64
	json         string
}

func (o *options) wants(row string) bool { return slices.Contains(o.rows, row) }

func parseOptions(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("scale", flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprintf(os.Stderr, usage, strings.Join(sizeNames(), ", "), strings.Join(rowNames, ", "))
	}
	quick := f.Bool("quick", false, "")
	only, sizes := f.String("only", strings.Join(rowNames, ","), ""), f.String("sizes", strings.Join(sizeNames(), ","), "")
	f.IntVar(&o.rounds, "rounds", 5, "")
	f.IntVar(&o.changes, "changes", 1000, "")
	f.IntVar(&o.churn, "churn", 60, "")
	f.StringVar(&o.binary, "binary", "bin/kube-proxy", "")
	flags := f.String("flags", "", "")
	f.StringVar(&o.etcd, "etcd", "", "")
	f.StringVar(&o.profile, "profile", "", "")
	f.Uint64Var(&o.seed, "seed", rand.Uint64N(1e6), "")
	f.StringVar(&o.json, "json", "", "")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return o, err
	} else if err != nil {
		return o, usageError{err}
	}
	if *quick {
		o.rounds, o.changes, o.churn = 1, o.changes/10, o.churn/6
	}
	if f.NArg() > 0 {
		return o, usageError{fmt.Errorf("unexpected %q", f.Arg(0))}
	}
	if o.rounds < 1 || o.changes < 10 || o.churn < 2 {
		return o, usageError{errors.New("-rounds has to be at least 1, -changes 10, -churn 2 (with -quick -changes 100, -churn 12)")}
	}
	for _, name := range strings.Split(*only, ",") {
		if !slices.Contains(rowNames, name) {
			return o, usageError{fmt.Errorf("there is no row %q", name)}
		}
		o.rows = append(o.rows, name)
	}
	for _, name := range strings.Split(*sizes, ",") {
		i := slices.IndexFunc(allSizes, func(s size) bool { return s.name == name })
		if i < 0 {
			return o, usageError{fmt.Errorf("there is no size %q", name)}
		}
		o.sizes = append(o.sizes, allSizes[i])
	}
	o.flags = strings.Fields(*flags)
	return o, nil
}

// A usageError is about the command line.
type usageError struct{ error }
