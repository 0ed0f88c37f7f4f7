package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/golang/glog"
	"github.com/spf13/pflag"
)

// Exit statuses.
const (
	exitDone   = 0 // a clean stop, -version, -help
	exitFailed = 1 // could not start, or could not go on
	exitUsage  = 2 // the command line makes no sense
)

const moreHelp = "(kube-proxy -help explains the flags)"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program, without its name.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "check" {
		return runCheck(args[1:], stdout, stderr)
	}
	o := defaults()
	flags := o.flagSet()
	switch err := parse(flags, o, args); {
	case errors.Is(err, pflag.ErrHelp):
		usage(stderr, flags)
		return exitDone
	case err != nil:
		fmt.Fprintln(stderr, err)
		fmt.Fprintln(stderr, moreHelp) // v0.4 printed the usage: so many lines that the error was out of sight
		return exitUsage
	}
	if o.version != versionOff {
		printVersion(o.version, stdout)
		return exitDone
	}

	signal.Ignore(syscall.SIGPIPE) // the reader of a pipe may leave: no reason for us to go
	log, err := o.startLog(flags)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	defer log.Flush(lastLines)
	if err := serve(o, flags, log); err != nil {
		glog.Error(err)
		return exitFailed
	}
	return exitDone
}

func printVersion(v versionValue, stdout io.Writer) {
	if v == versionRaw {
		fmt.Fprintln(stdout, readBuildInfo().raw())
		return
	}
	fmt.Fprintln(stdout, readBuildInfo())
}
