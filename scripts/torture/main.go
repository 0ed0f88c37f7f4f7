//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"kubeproxy/internal/process"
)

// settings is what the command line asks for.
type settings struct {
	binary      string
	engine      string
	kernel      bool
	takeovers   []string
	stop        bool
	duration    time.Duration
	connections int
	seed        uint64
	only        uint64
	most        int
	dir         string
}

var engines = []string{"ring", "epoll", "portable"}

const usage = `Usage: torture [flags]
Has many clients and endpoints talk through kube-proxy, in every way that a connection can go and end, and compares what each side
sent with what the other side saw, with the connection log and with the metrics. Ends by itself and prints a table; exits with 1 when
something was wrong. Linux.
`

func main() {
	os.Exit(realMain(os.Args[1:], os.Stdout, os.Stderr))
}

func realMain(args []string, stdout, stderr io.Writer) int {
	s, err := parseFlags(args, stderr)
	switch {
	case err == flag.ErrHelp:
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "torture: %v; -h explains\n", err)
		return 2
	}
	// In a network of its own nobody else's packets are dropped.
	status, done, err := process.AgainInOwnNetwork(args, stdout, stderr, func() error { return nil })
	if err != nil {
		fmt.Fprintf(stderr, "torture: %v\n", err)
		return 1
	}
	if done {
		return status
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := s.run(ctx, stdout); err != nil {
		fmt.Fprintf(stderr, "torture: %v\n", err)
		return 1
	}
	return 0
}

func parseFlags(args []string, stderr io.Writer) (s settings, err error) {
	f := flag.NewFlagSet("torture", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() { fmt.Fprint(stderr, usage); f.PrintDefaults() }
	f.StringVar(&s.binary, "binary", "bin/kube-proxy", "the `program` under test")
	f.StringVar(&s.engine, "engine", "auto", "`engine`: ring, epoll, portable or auto")
	f.BoolVar(&s.kernel, "kernel", false, "the kernel carries what it can (-kernel=auto); needs root, ip and nsenter")
	takeovers := f.String("takeovers", "", "every few seconds a new process takes over, with one of these `engines`, such as ring,epoll; all: of all three; empty: none does")
	f.BoolVar(&s.stop, "stop", true, "stop the process for some hundred milliseconds now and then (SIGSTOP)")
	f.DurationVar(&s.duration, "duration", time.Minute, "`time` after which no round begins")
	f.IntVar(&s.connections, "connections", 300, "TCP `connections` of a round, which all begin within a second")
	f.Uint64Var(&s.seed, "seed", 0, "`seed` of all scripts; 0: a random one")
	f.Uint64Var(&s.only, "only", 0, "all connections have the script of this `number`; 0: each has its own")
	f.IntVar(&s.most, "most", 20, "`faults` after which the run ends")
	f.StringVar(&s.dir, "dir", "", "`directory` for records and logs, which stays; empty: a temporary one, which stays after a fault")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	switch *takeovers {
	case "":
	case "all":
		s.takeovers = engines
	default:
		s.takeovers = strings.Split(*takeovers, ",")
	}
	isEngine := func(name string) bool { return slices.Contains(engines, name) }
	switch {
	case slices.ContainsFunc(s.takeovers, func(name string) bool { return !isEngine(name) }):
		return s, fmt.Errorf("-takeovers=%q: want all, or some of ring, epoll and portable", *takeovers)
	case f.NArg() > 0:
		return s, fmt.Errorf("what is %q?", f.Arg(0))
	case s.engine != "auto" && !isEngine(s.engine):
		return s, fmt.Errorf("-engine=%q: want ring, epoll, portable or auto", s.engine)
	case s.connections < 1 || s.most < 1:
		return s, errors.New("-connections and -most have to be at least 1")
	case s.kernel && os.Getuid() != 0:
		return s, errors.New("-kernel needs root")
	}
	for s.seed == 0 {
		s.seed = rand.Uint64N(1 << 32)
	}
	if s.binary, err = filepath.Abs(s.binary); err != nil {
		return s, err
	}
	return s, nil
}

// again returns the command that repeats the script of a number.
func (s settings) again(number uint64) string {
	command := fmt.Sprintf("bin/torture -engine=%s -seed=%d -only=%d", s.engine, s.seed, number)
	for _, f := range []struct {
		given bool
		flag  string
	}{{s.kernel, " -kernel"}, {len(s.takeovers) > 0, " -takeovers=" + strings.Join(s.takeovers, ",")}, {!s.stop, " -stop=false"}} {
		if f.given {
			command += f.flag
		}
	}
	return command
}
