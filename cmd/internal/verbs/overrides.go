package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/control"
	"kubeproxy/registry"
)

// Verbs by which an operator overrides the record on one node, for a time.

// A wishVerb is one that changes the overrides of a node.
type wishVerb struct {
	*Verb
	wish  control.Wish
	lasts time.Duration
}

func newWishVerb(word, args, summary string) *wishVerb {
	v := &wishVerb{Verb: newVerb(word, args, summary), lasts: control.DefaultFor}
	v.wish.Word = word
	return v
}

// addFor adds the flag that limits an override.
func (v *wishVerb) addFor(f *pflag.FlagSet) {
	f.Var(commandline.Positive(&v.lasts), "for", "`time` after which the record counts again")
}

// about takes a service and an endpoint from the arguments, and checks them.
func (v *wishVerb) about(args []string, n int) error {
	if len(args) < n {
		return fmt.Errorf("give %s", v.Args)
	}
	if err := atMost(args, n); err != nil {
		return err
	}
	name, err := registry.ParseName(args[0])
	if err != nil {
		return fmt.Errorf("invalid service %s: %w", commandline.OneLine(args[0]), err)
	}
	if _, err := registry.ParseAddrMatch(args[1]); err != nil {
		return fmt.Errorf("invalid endpoint %s: %w", commandline.OneLine(args[1]), err)
	}
	v.wish.Service, v.wish.Endpoint = name.Namespace+"/"+name.Name, args[1]
	return nil
}

// send puts the wish in force, or ends overrides.
func (v *wishVerb) send(path string) func(context.Context, *control.Client, io.Writer) (int, error) {
	return func(ctx context.Context, node *control.Client, stdout io.Writer) (int, error) {
		if v.wish.Word != "" {
			v.wish.For = v.lasts.String()
		}
		var done control.Done
		if err := node.Post(ctx, path, &v.wish, &done); err != nil {
			return 0, err
		}
		return Done, v.print(stdout, &done, func(w io.Writer) { printDone(w, &done, v.wish.Word == "") })
	}
}

func printDone(w io.Writer, done *control.Done, ended bool) {
	for i := range done.Overrides {
		if o := &done.Overrides[i]; ended {
			fmt.Fprintf(w, "%s: the record counts again\n", subject(o))
		} else {
			fmt.Fprintf(w, "%s: %s until %s\n", subject(o), effect(o), o.Until.Local().Format(time.DateTime))
		}
	}
	if done.Left > 0 {
		fmt.Fprintf(w, "%d clients are left: they were still connecting\n", done.Left)
	}
	if done.Warning != "" {
		fmt.Fprintf(w, "warning: %s\n", done.Warning)
	}
}

func subject(o *control.Override) string {
	if o.Service == "" {
		return "this node"
	}
	return o.Service + " " + o.Endpoint
}

func effect(o *control.Override) string {
	switch {
	case o.Word == "weight":
		return fmt.Sprintf("weight %d", o.Weight)
	case o.Word == "disable":
		return "no client"
	case o.Service == "":
		return "not ready"
	}
	return "no new client"
}

const takesEndpoint = "SERVICE ADDR"

// newDrain is for "kube-proxy drain": an endpoint gets no new client, and those that it has go on.
func newDrain() *Verb {
	v := newWishVerb("drain", takesEndpoint, "gives an endpoint no new client on a running node, for a time; those that it has go on")
	v.Verb.Wish = &v.wish
	v.AddFlags = func(f *pflag.FlagSet) {
		v.addFor(f)
		addForce(f, &v.wish.Force)
	}
	v.Examine = func(args []string) error { return v.about(args, 2) }
	v.Do = v.send("/v1/override")
	return v.Verb
}

func addForce(f *pflag.FlagSet, force *bool) {
	f.BoolVar(force, "force", false, "also if no other endpoint answers, so that new clients are refused")
}

// newDisable is for "kube-proxy disable": as drain, and those that it has are ended.
func newDisable() *Verb {
	v := newWishVerb("disable", takesEndpoint, "gives an endpoint no client on a running node, for a time: those that it has are ended")
	v.Timeout = 30 * time.Second
	v.AddFlags = func(f *pflag.FlagSet) {
		v.addFor(f)
		addForce(f, &v.wish.Force)
	}
	v.Examine = func(args []string) error { return v.about(args, 2) }
	v.Do = v.send("/v1/override")
	return v.Verb
}

// newWeight is for "kube-proxy weight".
func newWeight() *Verb {
	v := newWishVerb("weight", takesEndpoint+" N", "gives an endpoint another weight on a running node, for a time")
	v.Verb.Wish = &v.wish
	v.AddFlags = func(f *pflag.FlagSet) {
		v.addFor(f)
		addForce(f, &v.wish.Force)
	}
	v.Examine = func(args []string) error {
		if err := v.about(args, 3); err != nil {
			return err
		}
		weight, err := registry.ParseWeight(args[2])
		if err != nil {
			return fmt.Errorf("invalid weight %s: %w", commandline.OneLine(args[2]), err)
		}
		v.wish.Weight = weight
		return nil
	}
	v.Do = v.send("/v1/override")
	return v.Verb
}

// newEnable is for "kube-proxy enable", which ends what drain, disable and weight have begun.
func newEnable() *Verb {
	v := newWishVerb("enable", takesEndpoint, "ends drain, disable and weight of an endpoint on a running node: its record counts again")
	v.Verb.Wish = &v.wish
	v.wish.Word = ""
	v.Examine = func(args []string) error { return v.about(args, 2) }
	v.Do = v.send("/v1/enable")
	return v.Verb
}

// newDrainNode is for "kube-proxy drain-node": load balancers are told to send clients elsewhere.
func newDrainNode() *Verb {
	v := newWishVerb("drain-node", "", "makes a running node not ready, for a time, so that load balancers turn away; it goes on serving")
	undo := false
	v.AddFlags = func(f *pflag.FlagSet) {
		v.addFor(f)
		f.BoolVar(&undo, "undo", false, "make it ready again")
	}
	v.Examine = func(args []string) error {
		if v.wish.Word = "drain"; undo {
			v.wish.Word = ""
		}
		if len(args) > 0 {
			return errors.New("unexpected argument: " + commandline.OneLine(args[0]))
		}
		return nil
	}
	v.Do = func(ctx context.Context, node *control.Client, stdout io.Writer) (int, error) {
		if undo {
			return v.send("/v1/enable")(ctx, node, stdout)
		}
		return v.send("/v1/override")(ctx, node, stdout)
	}
	return v.Verb
}
