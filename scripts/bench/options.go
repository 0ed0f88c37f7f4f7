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
	"time"
)

const usage = `Usage: bench [flags]
Measures kube-proxy beside HAProxy, nginx and no proxy at all, in rounds of random order, and prints for each
row what each one did and the ratios within a round.
  -all             also the rows that are not in the default
  -only=ROW,...    just these rows
  -peers=NAME,...  beside whom: haproxy, nginx, direct (default: all that are installed); "none" for nobody
  -self=NAME=[BINARY] FLAGS;...
                   kube-proxies to measure, each with flags of its own (and a binary of its own, if its first word does not
                   begin with a dash); {ip} stands for the address that it alone listens on. Later ones are also
                   compared with the first. Default: kube-proxy=
  -binary=FILE     kube-proxy (default bin/kube-proxy)
  -etcd=FILE       etcd (default: built from the module that go.mod names)
  -rounds=N        how many rounds (default 15; below 6 there is no 95 %% interval)
  -time=DURATION   how long each proxy is measured in each round (default 1s)
  -warm=DURATION   how long it works before that (default 200ms)
  -seed=N          of the random order (default: another one each time)
  -limit=DURATION  give up after this (default 15m, with -all 60m)
  -json=FILE       write everything that was measured there, too
  -judge           end with exit status 1 also when a figure does not reach its bar
  -fewer=N         let burst, failing and the churns be made of an Nth, to try them out
Rows: %s
with -all also: %s
The numbers in roundtrip-N, bulk-N, udp-N (clients) and rate-N (percent of what direct carries) can be others.

What has to be installed, on Debian: apt-get install -y --no-install-recommends haproxy nginx-light libnginx-mod-stream
(and, if that starts them: systemctl disable --now haproxy nginx). What is missing is left out, and named.
It needs a descriptor limit of 20,000 (ulimit -n) for the idle row, and no privileges. As root it runs in a network
namespace of its own, where nobody else's firewall takes part.
`

// options is the command line.
type options struct {
	rows         []row
	peers        []string // nil: all that are installed
	variants     []variant
	binary, etcd string
	rounds       int
	warm, time   time.Duration
	limit        time.Duration
	seed         uint64
	json         string
	judge        bool
	fewer        int
}

func parseOptions(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprintf(os.Stderr, usage, strings.Join(defaultRows, ", "), strings.Join(moreRows, ", "))
	}
	all, only := f.Bool("all", false, ""), f.String("only", "", "")
	peers, self := f.String("peers", "", ""), f.String("self", "kube-proxy=", "")
	f.StringVar(&o.binary, "binary", "bin/kube-proxy", "")
	f.StringVar(&o.etcd, "etcd", "", "")
	f.IntVar(&o.rounds, "rounds", 15, "")
	f.DurationVar(&o.time, "time", time.Second, "")
	f.DurationVar(&o.warm, "warm", 200*time.Millisecond, "")
	f.Uint64Var(&o.seed, "seed", rand.Uint64N(1e6), "")
	f.DurationVar(&o.limit, "limit", 0, "")
	f.StringVar(&o.json, "json", "", "")
	f.BoolVar(&o.judge, "judge", false, "")
	f.IntVar(&o.fewer, "fewer", 1, "")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return o, err
	} else if err != nil {
		return o, usageError{err}
	}
	names := defaultRows
	switch {
	case f.NArg() > 0:
		return o, usageError{fmt.Errorf("unexpected %q", f.Arg(0))}
	case o.rounds < 1 || o.time <= 0 || o.warm <= 0 || o.fewer < 1:
		return o, usageError{errors.New("-rounds, -time, -warm and -fewer have to be positive")}
	case *all && *only != "":
		return o, usageError{errors.New("-all and -only contradict each other")}
	case *all:
		names = append(slices.Clone(defaultRows), moreRows...)
	case *only != "":
		names = strings.Split(*only, ",")
	}
	if o.limit == 0 {
		if o.limit = 15 * time.Minute; *all {
			o.limit = time.Hour
		}
	}
	for _, name := range names {
		r, err := rowNamed(strings.TrimSpace(name))
		if err != nil {
			return o, usageError{err}
		}
		o.rows = append(o.rows, r)
	}
	if *peers != "" {
		o.peers = strings.Split(*peers, ",")
		for _, name := range o.peers {
			if !slices.Contains([]string{"haproxy", "nginx", "direct", "none"}, name) {
				return o, usageError{fmt.Errorf("there is no peer %q", name)}
			}
		}
	}
	var err error
	if o.variants, err = parseVariants(*self); err != nil {
		return o, usageError{err}
	}
	return o, nil
}

// A usageError is about the command line.
type usageError struct{ error }
