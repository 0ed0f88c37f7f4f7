package main

import (
	"flag"
	"maps"
	"slices"
	"sync"

	"github.com/golang/glog"
	"github.com/spf13/pflag"

	"kubeproxy/registry"
)

// A reloader reads the file of -config again. It applies what may change while the program runs, and reports what may not.
type reloader struct {
	args []string // of the command line, which goes on winning over the file
	file bool     // there is one

	mu      sync.Mutex
	inForce map[string]string // values of flags
}

// live are the flags that may change. Glog holds their values, and applies them when they are set. Files that flags name are read again
// by their users, whenever they need them.
var live = []string{"log_backtrace_at", "v", "vmodule"}

func newReloader(args []string, file bool, flags *pflag.FlagSet) *reloader {
	return &reloader{args: args, file: file, inForce: settings(flags)}
}

// settings returns what the command line, the file and the defaults make together, for operators to see. No flag holds a secret: the
// password is in a file, and URLs with one are refused.
func settings(flags *pflag.FlagSet) map[string]string {
	all := make(map[string]string)
	flags.VisitAll(func(f *pflag.Flag) { all[f.Name] = f.Value.String() })
	delete(all, "help")
	delete(all, "version")
	return all
}

// settings returns what is in force.
func (r *reloader) settings() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.inForce)
}

// reload reads the file, and reports each flag that differs from what is in force. If anything is wrong with the file, nothing changes.
func (r *reloader) reload() {
	if !r.file {
		return
	}
	o := defaults()
	c := o.commandLine()
	err := c.Parse(r.args)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		for _, of := range glogFlags {
			setGlog(of.name, r.inForce[of.name])
		}
		glog.Errorf("SIGHUP: %v; nothing has changed", err)
		return
	}
	for _, of := range glogFlags {
		if !c.Flags.Changed(of.name) {
			setGlog(of.name, flag.Lookup(of.name).DefValue)
		}
	}
	o.logNotes()
	wanted := settings(c.Flags)
	differ := 0
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		is, was := wanted[name], r.inForce[name]
		switch {
		case is == was:
			continue
		case slices.Contains(live, name):
			r.inForce[name] = is
			glog.Infof("SIGHUP: -%s is now %s, and was %s", name, registry.Quote(is), registry.Quote(was))
		default:
			glog.Warningf("SIGHUP: -%s=%s needs a take-over (SIGUSR2) or a restart; it remains %s", name, registry.Quote(is), registry.Quote(was))
		}
		differ++
	}
	if differ == 0 {
		glog.Infof("SIGHUP: -config=%s has nothing new", registry.Quote(o.configFile))
	}
}

// setGlog gives a flag of glog a value that it has had before.
func setGlog(name, value string) {
	if err := flag.Set(name, value); err != nil {
		glog.Errorf("SIGHUP: -%s: %v", name, err)
	}
}
