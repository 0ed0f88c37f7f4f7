package main

import (
	"flag"
	"fmt"
	"strconv"
	"time"

	"github.com/golang/glog"
	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/logsink"
	"kubeproxy/registry"
)

// addLogFlags adds glog's flags. As in v0.4, logs go to standard error unless -logtostderr=false
// sends them to files. glog itself always writes to standard error, which logsink reads.
func (o *options) addLogFlags(c *commandline.Command) {
	const toStderr = "logtostderr"
	if err := flag.Set(toStderr, "true"); err != nil {
		panic(err) // glog defines it
	}
	c.Group(topicLogging, func(f *pflag.FlagSet) {
		for _, of := range []struct{ name, usage string }{
			{"alsologtostderr", "log to files and to standard error"},
			{"log_backtrace_at", "when the log line at `file:N` is written, add a stack trace"},
			{"log_dir", "`directory` for log files; the system's temporary directory if not given"},
			{"log_link", "`directory` for links to the newest log files, too"},
			{"logbuflevel", "no effect: log files are written at once"},
			{"stderrthreshold", "log lines of this `severity` or a higher one go to standard error as well as to files: 0 INFO, 1 WARNING, 2 ERROR, 3 FATAL"},
			{"v", "log `level`: 1 listeners, 2 connections, 3 decisions, 4 everything"},
			{"vmodule", "log levels by source file, such as `proxier=3,dial=2`"},
		} {
			f.AddGoFlag(flag.Lookup(of.name))
			f.Lookup(of.name).Usage = of.usage
		}
		f.BoolVar(&o.logToStderr, toStderr, true, "log to standard error; if not, to files in -log_dir")
	})
	c.Move(topicObsolete, "logbuflevel")
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
