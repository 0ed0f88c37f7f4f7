package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/edit"
	"kubeproxy/cmd/internal/inert"
	"kubeproxy/cmd/internal/verbs"
	"kubeproxy/registry"
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
	everywhere bool // the record is edited, in place of asking a node
}

// flagsForControl are the flags that make a difference to all verbs. The others of the proxy are taken and do nothing, so that the file of
// -config of a node can be given as it is.
var flagsForControl = []string{"help", "version", "config", "control", "takeover"}

// controlVerbs returns the verbs, each new.
func controlVerbs() (all []*controlVerb) {
	for _, v := range verbs.All() {
		all = append(all, &controlVerb{options: *defaults(), Verb: v})
	}
	return all
}

func (v *controlVerb) commandLine() *commandline.Command {
	c := commandline.New("kube-proxy "+v.Word, v.Args, v.Summary, func(flags *pflag.FlagSet) error {
		if err := cmp.Or(v.readConfig(flags), v.Examine(flags.Args())); err != nil || !v.everywhere {
			return err
		}
		return v.contradictionOfEverywhere(flags)
	})
	v.addFlags(c)
	shown := append(v.Define(c), flagsForControl...)
	if v.Wish != nil {
		c.Group(commandline.General, func(f *pflag.FlagSet) {
			f.BoolVar(&v.everywhere, "everywhere", false, "edit the record in etcd, for all nodes and without an end, in place of asking one node")
		})
		shown = append(append(shown, "everywhere"), flagsOfEtcd...)
	}
	c.Show(shown)
	return c
}

// contradictionOfEverywhere says why no record can be edited.
func (v *controlVerb) contradictionOfEverywhere(flags *pflag.FlagSet) error {
	const reads = "-everywhere writes to etcd, and this node reads "
	switch from := &v.source; {
	case flags.Changed("for"):
		return errors.New("-for and -everywhere are mutually exclusive: what is in the record stays until kube-proxy enable -everywhere")
	case from.master.given():
		return errors.New(reads + "an API server (-master or -kubeconfig), to which nothing is written: edit its records there, or give the flags of an etcd without -config")
	case !from.etcd.given() && from.files.given():
		return fmt.Errorf(reads+"files: edit the annotation %s of the endpoints below %s", registry.WeightAnnotation, registry.Quote(from.files.dir))
	}
	return v.source.etcd.contradictionOfWriter()
}

// execute is the program when its first argument is the word: without that word.
func (v *controlVerb) execute(args []string, stdout, stderr io.Writer) int {
	if status, done := begin(v.commandLine(), args, stdout, stderr); done {
		return status
	}
	if !v.everywhere {
		return v.Ask(cmp.Or(v.controlPath(), controlUnit), stdout, stderr)
	}
	if err := v.edit(stdout); err != nil {
		fmt.Fprintf(inert.Writer(stderr), "kube-proxy %s: %v\n", v.Word, err)
		return exitFailed
	}
	return exitDone
}

// edit writes what the verb wants into the record.
func (v *controlVerb) edit(stdout io.Writer) error {
	of, err := registry.ParseAddrMatch(v.Wish.Endpoint)
	if err != nil {
		return err
	}
	service, err := registry.ParseName(v.Wish.Service)
	if err != nil {
		return err
	}
	w := edit.Weighing{Service: service, Of: of, Weight: v.Wish.Weight, Undo: v.Wish.Word == "", Force: v.Wish.Force}
	return v.source.etcd.withClient(v.Timeout, func(ctx context.Context, client *clientv3.Client) error {
		return edit.Weigh(ctx, client, w, edit.Output{To: stdout, JSON: v.Output == outputJSON})
	})
}
