//go:build linux

// Fleet measures what many nodes and one etcd cost each other.
//
//	fleet [-nodes=N] [-sources=N,...] [-services=N] [-endpoints=N] [-steps=NAME,...] [-json=FILE]
//
// It starts an etcd, fills it with services, and starts as many kube-proxies as it is told, each a
// process with an address of its own, that all offer all of the services. Then it does to them what
// happens to a fleet: all start at once, nothing happens, one record changes, everything is read anew,
// etcd is killed. Of each it tells what it cost etcd, and how long it took until the last node was there.
//
// More nodes than a machine has room for are measured by their sources alone (config/etcdsource): to
// etcd they are the same. docs/scale.md tells what came of it; -h lists the steps.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"kubeproxy/scripts/internal/measure"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "sources" { // we started ourselves
		exit(runSources(os.Args[2]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	exit(run(ctx, os.Args[1:]))
}

func exit(err error) {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.As(err, new(usageError)):
		fmt.Fprintf(os.Stderr, "fleet: %v (see fleet -h)\n", err)
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "fleet:", err)
	os.Exit(1)
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("not done after %v", o.limit))
	defer cancel()
	if _, err := measure.RaiseDescriptorLimit(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "fleet-")
	if err != nil {
		return err
	}
	ps := &measure.Processes{Dir: dir}
	defer func() { err = errors.Join(err, ps.Stop()) }()

	out := report{Machine: measure.Machine(), Services: o.services, Endpoints: o.endpoints}
	if out.Busy, err = measure.BusyNow(ctx); err != nil {
		return err
	}
	out.begin(os.Stdout)
	l, err := newLab(ctx, o, ps)
	if err != nil {
		return err
	}
	defer l.close()
	return l.measure(ctx, func(r result) error {
		out.add(os.Stdout, r)
		if o.json == "" {
			return nil
		}
		return out.write(o.json) // after every step, so that what is known is not lost
	})
}
