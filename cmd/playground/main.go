package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	for name, value := range map[string]string{"logtostderr": "true", "v": "2"} { // glog's; level 2 tells of each client
		if err := flag.Set(name, value); err != nil {
			panic(err) // glog defines them
		}
	}
	flag.Usage = usage
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends us at once
	if err := do(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}

// options are the flags of the commands.
type options struct {
	n    int    // of call
	etcd string // of put, get and del
}

// commands are what can be done besides running the playground itself.
var commands = map[string]struct {
	args int
	do   func(ctx context.Context, o options, args []string) error
}{
	"call": {2, func(ctx context.Context, o options, args []string) error {
		return call(ctx, os.Stdout, args[0], args[1], o.n)
	}},
	"put": {2, onEtcd(put)},
	"get": {1, onEtcd(get)},
	"del": {1, onEtcd(del)},
}

// do does what the command line asks for.
func do(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return run(ctx, os.Stdout)
	}
	name := args[0]
	var o options
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	flags.Usage = usage
	flags.IntVar(&o.n, "n", 1, "")
	flags.StringVar(&o.etcd, "etcd", defaultEtcd, "")
	if err := flags.Parse(args[1:]); err != nil {
		return err // not with ExitOnError
	}
	c, known := commands[name]
	switch {
	case !known:
		misused("unknown command: " + name)
	case flags.NArg() != c.args:
		misused(fmt.Sprintf("%s needs %d arguments, not %d", name, c.args, flags.NArg()))
	}
	return c.do(ctx, o, flags.Args())
}

// misused ends the program for a command line that makes no sense.
func misused(how string) {
	fmt.Fprintln(os.Stderr, "playground:", how)
	usage()
	os.Exit(2)
}

func usage() {
	fmt.Fprintf(os.Stderr, `Usage:
  %[1]s [-v=N]
        run etcd, demo backends and the proxy until Ctrl-C; N says how much the proxy tells
  %[1]s call [-n N] http|tcp|udp ADDRESS
        call a service, N times, each time as a new client
  %[1]s put [-etcd ADDRESS] KEY VALUE
  %[1]s get [-etcd ADDRESS] KEY
        a KEY that ends in a slash gives all keys below it
  %[1]s del [-etcd ADDRESS] KEY
        change what the proxy is told, or look at it
`, self(os.Args[0]))
}
