//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const usageText = `Usage: fleet [flags]
Measures what many nodes and one etcd cost each other. Nodes are kube-proxies, each with an address of its own, or
just what they follow etcd with (sources), which to etcd is the same.
  -nodes=N         kube-proxies (default 50); 0 for none
  -sources=N,...   fleets of sources to measure after them (default 10,100); "none" for none. They share one process and the
                   machine: a thousand of them want fewer services (-nodes=0 -sources=1000 -services=100)
  -services=N      services that all of them offer, from port 10000 on (default 1000)
  -endpoints=N     of each service (default 10)
  -steps=STEP,...  what to do (default: all)
  -via=WAY,...     the nodes' way to etcd: direct, grpc-proxy (default: both, one after the other). The outages are left out
                   behind the grpc-proxy: it hides them
  -rounds=N        how often all start, and how often etcd is killed (default 3)
  -changes=N       how many changes are made, one after the other (default 50)
  -idle=DURATION   for how long nothing happens (default 10s)
  -period=DURATION -config_sync_period in the step resync (default 10s); in the others it is an hour
  -outages=DURATION,...
                   how long etcd is away (default 0s,5s)
  -binary=FILE     kube-proxy (default bin/kube-proxy)
  -etcd=FILE       etcd (default: built from the module that go.mod names)
  -limit=DURATION  give up after this (default 30m)
  -json=FILE       write everything that was measured there, too
Steps:
  herd    all start at the same moment, until the last one serves
  idle    nothing happens
  change  the endpoints of a service are replaced, until the last one serves the new ones
  outage  etcd is killed, and started again; a change is made as soon as it takes one, until the last one serves it
  resync  everything is read again, about every -period, and nothing has changed
Each node listens on all of the ports: with the defaults that is 50,000 sockets. It needs a descriptor limit of
as many as there are services and some (ulimit -n), 100 MB of memory for each node, and no privileges.
`

var stepNames = []string{"herd", "idle", "change", "outage", "resync"}

// The ways to etcd.
const (
	direct    = "direct"
	grpcProxy = "grpc-proxy"
)

// options is the command line.
type options struct {
	nodes, services, endpoints int
	sources                    []int
	steps, ways                []string
	rounds, changes            int
	idle, period               time.Duration
	outages                    []time.Duration
	binary, etcd               string
	limit                      time.Duration
	json                       string
}

// Ports of the services begin here, and end below those that the kernel gives to outgoing connections.
const (
	firstPort   = 10000
	maxServices = 20000
)

// flagSet gives the flags that fill in o. Lists are read here, so that a bad one is a bad command line.
func flagSet(o *options) *flag.FlagSet {
	f := flag.NewFlagSet("fleet", flag.ContinueOnError)
	f.Usage = func() { fmt.Fprint(os.Stderr, usageText) }
	f.IntVar(&o.nodes, "nodes", 50, "")
	f.IntVar(&o.services, "services", 1000, "")
	f.IntVar(&o.endpoints, "endpoints", 10, "")
	f.IntVar(&o.rounds, "rounds", 3, "")
	f.IntVar(&o.changes, "changes", 50, "")
	f.DurationVar(&o.idle, "idle", 10*time.Second, "")
	f.DurationVar(&o.period, "period", 10*time.Second, "")
	f.StringVar(&o.binary, "binary", "bin/kube-proxy", "")
	f.StringVar(&o.etcd, "etcd", "", "")
	f.DurationVar(&o.limit, "limit", 30*time.Minute, "")
	f.StringVar(&o.json, "json", "", "")

	o.sources, o.steps, o.ways = []int{10, 100}, stepNames, []string{direct, grpcProxy}
	o.outages = []time.Duration{0, 5 * time.Second}
	list(f, "sources", &o.sources, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err == nil && n < 1 {
			err = fmt.Errorf("%d is not positive", n)
		}
		return n, err
	})
	list(f, "steps", &o.steps, oneOf(stepNames))
	list(f, "via", &o.ways, oneOf([]string{direct, grpcProxy}))
	list(f, "outages", &o.outages, time.ParseDuration)
	return f
}

// list makes a flag of a list with commas, or the word none.
func list[T any](f *flag.FlagSet, name string, all *[]T, read func(string) (T, error)) {
	f.Func(name, "", func(text string) error {
		*all = nil
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part == "none" {
				continue
			}
			v, err := read(part)
			if err != nil {
				return err
			}
			*all = append(*all, v)
		}
		return nil
	})
}

func parseOptions(args []string) (options, error) {
	var o options
	f := flagSet(&o)
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return o, err
	} else if err != nil {
		return o, usageError{err}
	}
	switch {
	case f.NArg() > 0:
		return o, usageError{fmt.Errorf("unexpected %q", f.Arg(0))}
	case o.nodes < 0 || o.nodes > maxNodes:
		return o, usageError{fmt.Errorf("-nodes=%d is not between 0 and %d", o.nodes, maxNodes)}
	case o.services < 1 || o.services > maxServices:
		return o, usageError{fmt.Errorf("-services=%d is not between 1 and %d", o.services, maxServices)}
	case o.endpoints < 1 || o.rounds < 1 || o.changes < 1 || o.idle <= 0 || o.period <= 0:
		return o, usageError{errors.New("-endpoints, -rounds, -changes, -idle and -period have to be positive")}
	}
	return o, nil
}

func oneOf(names []string) func(string) (string, error) {
	return func(name string) (string, error) {
		if !slices.Contains(names, name) {
			return "", fmt.Errorf("there is no %q, only %s", name, strings.Join(names, ", "))
		}
		return name, nil
	}
}

// A usageError is about the command line.
type usageError struct{ error }
