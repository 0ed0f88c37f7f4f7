package main

import (
	"flag"
	"fmt"
	"strconv"
	"time"

	"github.com/golang/glog"
	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/logsink"
	"kubeproxy/registry"
)

// addLogFlags adds glog's flags. As in v0.4, logs go to standard error unless -logtostderr=false
// sends them to files. glog itself always writes to standard error, which logsink reads.
func (o *options) addLogFlags(f *pflag.FlagSet) {
	const toStderr = "logtostderr"
	if err := flag.Set(toStderr, "true"); err != nil {
		panic(err) // glog defines it
	}
	flag.VisitAll(func(of *flag.Flag) {
		if of.Name != toStderr {
			f.AddGoFlag(of)
		}
	})
	f.BoolVar(&o.logToStderr, toStderr, true, flag.Lookup(toStderr).Usage)
	f.Lookup("v").Usage = "log `level`: 1 listeners, 2 connections, 3 decisions, 4 everything"
	f.Lookup("vmodule").Usage = "log levels by source file, `proxier=3,...`"
	f.Lookup("log_dir").Usage = "`directory` for log files; the system's temporary directory if not given"
	f.Lookup("log_backtrace_at").Usage = "when the log line at `file:N` is written, add a stack trace"
	f.Lookup("stderrthreshold").Usage = "log lines of this `severity` or a higher one go to standard error as well as to files"
	f.Lookup("logbuflevel").Usage = "no effect: log files are written at once"
}

// lastLines is how long the program waits at its end for a log that is slow or is not read.
const lastLines = time.Second

// startLog has log lines go where the flags say.
func (o *options) startLog(flags *pflag.FlagSet) (*logsink.Sink, error) {
	value := func(name string) string { return flags.Lookup(name).Value.String() }
	threshold, err := strconv.Atoi(value("stderrthreshold"))
	if err != nil {
		return nil, fmt.Errorf("-stderrthreshold: %w", err)
	}
	sink, err := logsink.Start(logsink.Config{
		ToFiles:   !o.logToStderr,
		Also:      value("alsologtostderr") == "true",
		Threshold: threshold,
		Dir:       value("log_dir"),
		Link:      value("log_link"),
	})
	if err != nil {
		return nil, fmt.Errorf("-log_dir=%s: %w", registry.Quote(value("log_dir")), err)
	}
	if o.logToStderr && value("log_dir") != "" {
		glog.Warning("-log_dir is ignored: log lines go to standard error, unless -logtostderr=false")
	}
	return sink, nil
}
