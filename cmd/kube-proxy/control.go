package main

import (
	"cmp"
	"io"
	"path/filepath"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/verbs"
)

// Names of the control socket.
const (
	controlName = "control.sock"                           // beside that of -takeover
	controlOff  = "off"                                    // -control=off: there is none
	controlUnit = "/run/kube-proxy-classic/" + controlName // of a node that runs under our unit
)

// controlPath is where the control socket of a node with these options is; "" if there is none.
func (o *options) controlPath() string {
	switch {
	case o.control == controlOff:
		return ""
	case o.control == "" && o.takeover != "":
		return filepath.Join(filepath.Dir(o.takeover), controlName)
	}
	return o.control
}

// A controlVerb is a verb with its command line.
type controlVerb struct {
	options // of these the file of a node, and what it says of sockets
	*verbs.Verb
}

// flagsForControl are the flags that make a difference to all verbs. The others of the proxy are taken and do nothing, so that the file of
// -config of a node can be given as it is.
var flagsForControl = []string{"help", "version", "config", "control", "takeover"}

// controlVerbs returns the verbs, each new.
func controlVerbs() (all []*controlVerb) {
	for _, v := range verbs.All() {
		all = append(all, &controlVerb{*defaults(), v})
	}
	return all
}

func (v *controlVerb) commandLine() *commandline.Command {
	c := commandline.New("kube-proxy "+v.Word, v.Args, v.Summary, func(flags *pflag.FlagSet) error {
		if err := v.readConfig(flags); err != nil {
			return err
		}
		return v.Examine(flags.Args())
	})
	v.addFlags(c)
	c.Show(append(v.Define(c), flagsForControl...))
	return c
}

// execute is the program when its first argument is the word: without that word.
func (v *controlVerb) execute(args []string, stdout, stderr io.Writer) int {
	if status, done := begin(v.commandLine(), args, stdout, stderr); done {
		return status
	}
	return v.Ask(cmp.Or(v.controlPath(), controlUnit), stdout, stderr)
}
