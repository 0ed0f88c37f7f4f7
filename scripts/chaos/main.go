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
	"strings"
	"syscall"
	"time"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/chaos/faults"
	"kubeproxy/scripts/chaos/proxynode"
)

// settings is what the command line asks for.
type settings struct {
	members     int
	duration    time.Duration
	seed        uint64
	rate        float64 // transactions a second
	connections int     // a second
	flows       int     // UDP, at any time
	sync        time.Duration
	login       bool
	only        string
	smoke       bool
	soak        int
	breakage    string
	dir         string
	verbosity   int

	node  string // the program that is the node: this one, or one with a breakage
	first bool   // the first failure ends the run

	factor int // of the bounds for recovery
}

const usage = `Usage: chaos [flags]
Runs a proxy against a real etcd while faults are injected, and checks all the while that what is
served is what the registry says. Ends by itself and prints a table; exits with 1 when there was a
wrong state, a failed client or a recovery that took too long.
`

func main() {
	os.Exit(realMain(os.Args[1:], os.Stdout, os.Stderr))
}

func realMain(args []string, stdout, stderr io.Writer) int {
	s, f, err := parse(args, stderr)
	switch {
	case err == flag.ErrHelp:
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "chaos: %v; -h explains\n", err)
		return 2
	case len(f.Args()) == 1 && f.Arg(0) == "node":
		if err := proxynode.Run(s.verbosity); err != nil {
			fmt.Fprintf(stderr, "chaos node: %v\n", err)
			return 1
		}
		return 0
	case len(f.Args()) > 0:
		fmt.Fprintf(stderr, "chaos: what is %q? -h explains\n", f.Arg(0))
		return 2
	}
	status, done, err := process.AgainInOwnNetwork(args, stdout, stderr, buildTools)
	if err != nil {
		fmt.Fprintf(stderr, "chaos: %v\n", err)
		return 1
	}
	if done {
		return status
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	switch {
	case s.breakage != "":
		err = runBreakages(ctx, s, stdout)
	case s.soak > 0:
		err = withDirectory(s, func(s settings) error { return runSoak(ctx, s, stdout) })
	default:
		err = withDirectory(s, func(s settings) error { return runChaos(ctx, s, stdout) })
	}
	if err != nil {
		fmt.Fprintf(stderr, "chaos: %v\n", err)
		return 1
	}
	return 0
}

// parse reads the command line.
func parse(args []string, stderr io.Writer) (settings, *flag.FlagSet, error) {
	s := settings{factor: 1}
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&s.members, "members", 1, "members of the etcd cluster, 1 or 3")
	f.DurationVar(&s.duration, "duration", 10*time.Minute, "how long faults are injected")
	f.Uint64Var(&s.seed, "seed", 0, "what all choices are drawn from; 0 takes a new one")
	f.Float64Var(&s.rate, "rate", 50, "transactions a second")
	f.IntVar(&s.connections, "connections", 500, "client connections a second")
	f.IntVar(&s.flows, "flows", 20, "UDP flows at any time")
	f.DurationVar(&s.sync, "config_sync_period", 5*time.Second, "the proxy's: how often it reads everything again")
	f.BoolVar(&s.login, "login", true, "the proxy logs in as a user: etcd asks for that while it has authentication, and takes it at any time. Without, each new connection begins with what is wanted of it")
	f.StringVar(&s.only, "only", "", "inject only these faults, `NAME,...`")
	f.BoolVar(&s.smoke, "smoke", false, "a small run: each fault that is quick and needs no privileges, once")
	f.IntVar(&s.soak, "soak", 0, "instead of faults: make `N` changes to a healthy etcd as fast as it takes them, and compare what the proxy needs before and after")
	f.StringVar(&s.breakage, "breakage", "", "build the proxy with a deliberate fault, and see that the run notices: `NAME` of a file in testdata/breakages, or all")
	f.StringVar(&s.dir, "dir", "", "keep data and the proxy's log in this `directory`; else they are removed after a run without failures")
	f.IntVar(&s.verbosity, "v", 0, "the proxy's log level")
	f.Usage = func() {
		fmt.Fprint(stderr, usage)
		f.PrintDefaults()
		fmt.Fprintln(stderr, "Faults:")
		for _, f := range faults.All() {
			fmt.Fprintf(stderr, "  %-22s %s\n", f.Name, f.About)
		}
	}
	if err := f.Parse(args); err != nil {
		return s, f, err
	}
	switch {
	case s.members != 1 && s.members != 3:
		return s, f, fmt.Errorf("-members is 1 or 3, not %d", s.members)
	case s.rate <= 0 || s.connections < 0 || s.flows < 0 || s.soak < 0:
		return s, f, fmt.Errorf("rates and counts are positive")
	}
	for _, name := range s.chosen() {
		if _, ok := faults.Find(name); !ok {
			return s, f, fmt.Errorf("there is no fault %q", name)
		}
	}
	if s.seed == 0 {
		s.seed = rand.Uint64()>>32 + 1 // one that is easy to copy
	}
	var err error
	s.node, err = os.Executable()
	return s, f, err
}

// chosen are the names given with -only.
func (s settings) chosen() []string {
	if s.only == "" {
		return nil
	}
	return strings.Split(s.only, ",")
}

// withDirectory gives a run a directory of its own, and removes it after a run without failures, unless -dir was given.
func withDirectory(s settings, run func(settings) error) error {
	keep := s.dir != ""
	dir, err := os.MkdirTemp(s.dir, "chaos")
	if err != nil {
		return err
	}
	s.dir = dir
	if err := run(s); err != nil {
		return fmt.Errorf("%w\nwhat is left of it is in %s", err, dir)
	}
	if keep {
		return nil
	}
	return os.RemoveAll(dir)
}

// buildTools builds what a run may need.
func buildTools() error {
	_, err := process.EtcdBinary()
	_, err2 := process.Etcdutl()
	return errors.Join(err, err2)
}
