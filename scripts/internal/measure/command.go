//go:build linux

package measure

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"kubeproxy/internal/process"
)

// Options are what every sub-command has.
type Options struct {
	Binary string // kube-proxy
	Etcd   string // empty: built
	Rounds int
	Seed   uint64
	Limit  time.Duration
	JSON   string

	WithoutEtcd bool // the sub-command starts no etcd, so none is built
}

// FlagSet gives the flags of a sub-command that fill in o. More can be added. About is what -h begins with.
func (o *Options) FlagSet(name, about string, rounds int, limit time.Duration) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.Usage = func() {
		fmt.Printf("Usage: measure %s [flags]\n%s\n", name, strings.TrimSpace(about))
		f.PrintDefaults()
	}
	f.StringVar(&o.Binary, "binary", "bin/kube-proxy", "the `FILE` of kube-proxy")
	f.StringVar(&o.Etcd, "etcd", "", "the `FILE` of etcd (default: built from the module that go.mod names)")
	f.IntVar(&o.Rounds, "rounds", rounds, "how many `rounds`; below 6 there is no 95 % interval")
	f.Uint64Var(&o.Seed, "seed", rand.Uint64N(1e6), "of the random `order` (default: another one each time)")
	f.DurationVar(&o.Limit, "limit", limit, "give up after this `time`")
	f.StringVar(&o.JSON, "json", "", "write everything that was measured to this `FILE`, too")
	return f
}

// Parse reads a command line. Its errors are about the command line.
func Parse(f *flag.FlagSet, args []string) error {
	usage := f.Usage
	f.Usage = func() {}
	f.SetOutput(io.Discard) // the caller reports the error
	err := f.Parse(args)
	f.SetOutput(os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		usage()
		return err
	case err != nil:
		return Usage("%w", err)
	case f.NArg() > 0:
		return Usage("unexpected %q", f.Arg(0))
	}
	return nil
}

// A UsageError is about the command line.
type UsageError struct{ error }

// Usage makes a [UsageError].
func Usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// List makes a flag of a list with commas. The word none makes it empty.
func List[T any](f *flag.FlagSet, name string, all *[]T, usage string, read func(string) (T, error)) {
	f.Func(name, usage, func(text string) error {
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

// OneOf reads one of some names.
func OneOf(names ...string) func(string) (string, error) {
	return func(name string) (string, error) {
		if !slices.Contains(names, name) {
			return "", fmt.Errorf("there is no %q, only %s", name, strings.Join(names, ", "))
		}
		return name, nil
	}
}

// A Role is what a process does that a measurement has started from its own program.
type Role func(args []string) error

// Play plays a role and ends the process, if its first argument names one.
func Play(roles ...map[string]Role) {
	for _, of := range roles {
		if len(os.Args) > 2 && of[os.Args[1]] != nil {
			exit(os.Args[1], of[os.Args[1]](os.Args[2:]))
		}
	}
}

// Main is a sub-command: parse reads its command line, and gives what it does.
func Main(name string, args []string, parse func(args []string) (Options, func(context.Context, *Site) error, error)) {
	o, run, err := parse(args)
	if err != nil {
		exit(name, err)
	}
	status, done, err := process.AgainInOwnNetwork(os.Args[1:], os.Stdout, os.Stderr, func() error {
		if o.Etcd != "" || o.WithoutEtcd {
			return nil
		}
		_, err := process.EtcdBinary()
		return err
	})
	if done {
		os.Exit(status)
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		err = Run(ctx, o, run)
	}
	exit(name, err)
}

func exit(name string, err error) {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.As(err, new(UsageError)):
		fmt.Fprintf(os.Stderr, "%s: %v (see measure %[1]s -h)\n", name, err)
		os.Exit(2)
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	os.Exit(1)
}

// A Site is what every measurement has: processes, randomness, a report.
type Site struct {
	*process.Group
	Executable  string // this program
	Descriptors int
	Random      *rand.Rand
	Report      *Report
	JSON        string
}

// Run makes a site, measures, and ends whatever was started.
func Run(ctx context.Context, o Options, measure func(context.Context, *Site) error) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Limit, fmt.Errorf("not done after %v", o.Limit))
	defer cancel()
	s := &Site{Group: new(process.Group), Random: rand.New(rand.NewPCG(o.Seed, 0)), Report: &Report{Rounds: o.Rounds, Seed: o.Seed}, JSON: o.JSON}
	if s.Executable, err = os.Executable(); err != nil {
		return err
	}
	if s.Descriptors, err = RaiseDescriptorLimit(); err != nil {
		return err
	}
	if s.Dir, err = os.MkdirTemp("", "measure-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	return measure(ctx, s)
}

// Rounds has each subject of a table do its work in every round, one after the other in random order, and keeps what
// came of it. What fails spoils a sample, and not the others. It returns an error when ctx ends, and then prints what has been measured.
func (s *Site) Rounds(ctx context.Context, t *Table, rounds int, do func(context.Context, int) (Sample, error)) error {
	for range rounds {
		for _, i := range s.Random.Perm(len(t.Subjects)) {
			sample, err := do(ctx, i)
			if ctx.Err() != nil {
				t.Summarise()
				t.Print(os.Stdout)
				return context.Cause(ctx)
			}
			if err != nil {
				sample.Fail(1, err.Error())
			}
			name := t.Subjects[i].Name
			t.Samples[name] = append(t.Samples[name], sample)
		}
	}
	t.Summarise()
	return nil
}

// Pause waits, and returns early with an error when ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
