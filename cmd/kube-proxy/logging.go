package main

import (
	"context"
	"flag"
	"time"

	"github.com/golang/glog"
	"github.com/spf13/pflag"
)

// addLogFlags adds glog's flags. As in v0.4, logs go to standard error unless -logtostderr=false
// sends them to files.
func addLogFlags(f *pflag.FlagSet) {
	if err := flag.Set("logtostderr", "true"); err != nil {
		panic(err) // glog defines it
	}
	f.AddGoFlagSet(flag.CommandLine)
	f.Lookup("v").Usage = "log `level`: 1 listeners, 2 connections, 3 decisions, 4 everything"
	f.Lookup("vmodule").Usage = "log levels by source file, `proxier=3,...`"
	f.Lookup("log_dir").Usage = "`directory` for log files; the system's temporary directory if not given"
	f.Lookup("log_backtrace_at").Usage = "when the log line at `file:N` is written, add a stack trace"
	f.Lookup("stderrthreshold").Usage = "log lines of this `severity` or a higher one go to standard error as well as to files"
}

// keepFlushing writes out what glog has buffered each period, until ctx ends. (glog itself does so
// every 30 s; -log_flush_frequency is older than that.)
func keepFlushing(ctx context.Context, period time.Duration) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			glog.Flush()
		}
	}
}
