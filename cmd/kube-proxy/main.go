package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/golang/glog"
)

// Exit statuses.
const (
	exitDone   = 0 // a clean stop, -version, -help
	exitFailed = 1 // could not start, or could not go on
	exitUsage  = 2 // the command line makes no sense
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program, without its name.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		if word := words[args[0]]; word != nil {
			return word(args[1:], stdout, stderr)
		}
	}
	o := defaults()
	flags := o.flagSet()
	if status, done := begin(o.parse, flags, &o.version, args, stdout, stderr); done {
		return status
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
