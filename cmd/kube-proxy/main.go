package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/golang/glog"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program, without its name.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		if args[0] == "help" {
			return runHelp(args[1:], stdout, stderr)
		}
		if word := wordOf(args[0]); word != nil {
			return word(args[1:], stdout, stderr)
		}
	}
	o := defaults()
	c := o.commandLine()
	if status, done := begin(c, args, stdout, stderr); done {
		return status
	}

	signal.Ignore(syscall.SIGPIPE) // the reader of a pipe may leave: no reason for us to go
	log, err := o.startLog(c.Flags)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	defer log.Flush(lastLines)
	if err := serve(o, c.Flags, args, log); err != nil {
		glog.Error(err)
		return exitFailed
	}
	return exitDone
}
