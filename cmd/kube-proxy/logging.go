package main

import (
	"flag"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/golang/glog"
	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/logsink"
	"kubeproxy/registry"
)

// glogFlags are the flags whose values glog holds.
var glogFlags = []struct{ name, usage string }{
	{"alsologtostderr", "log to files and to standard error"},
	{"log_backtrace_at", "when the log line at `file:N` is written, add a stack trace"},
	{"log_dir", "`directory` for log files; the system's temporary directory if not given"},
	{"log_link", "`directory` for links to the newest log files, too"},
	{"logbuflevel", "no effect: log files are written at once"},
	{"stderrthreshold", "log lines of this `severity` or a higher one go to standard error as well as to files: 0 INFO, 1 WARNING, 2 ERROR, 3 FATAL"},
	{"v", "log `level`: 1 listeners, 2 connections, 3 decisions, 4 everything"},
	{"vmodule", "log levels by source file, such as `proxier=3,dial=2`"},
}

// addLogFlags adds glog's flags. As in v0.4, logs go to standard error unless -logtostderr=false
// sends them to files. glog itself always writes to standard error, which logsink reads.
func (o *options) addLogFlags(c *commandline.Command) {
	glogToStderr()
	c.Group(topicLogging, func(f *pflag.FlagSet) {
		for _, of := range glogFlags {
			f.AddGoFlag(flag.Lookup(of.name))
			f.Lookup(of.name).Usage = of.usage
		}
		f.BoolVar(&o.logToStderr, "logtostderr", true, "log to standard error; if not, to files in -log_dir")
	})
	c.Move(topicObsolete, "logbuflevel")
}

// glogToStderr has glog write to standard error. It does so once: glog reads the flag without a lock.
var glogToStderr = sync.OnceFunc(func() {
	if err := flag.Set("logtostderr", "true"); err != nil {
		panic(err) // glog defines it
	}
})

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
	o.logNotes()
	return sink, nil
}

// logNotes reports what in the file of -config has no effect.
func (o *options) logNotes() {
	for _, note := range o.configNotes {
		glog.Warningf("-config=%s: %s", registry.Quote(o.configFile), note)
	}
}
