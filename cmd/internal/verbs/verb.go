package verbs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/control"
	"kubeproxy/cmd/internal/inert"
)

// Exit statuses of a command that was carried out.
const (
	Done    = 0
	failed  = 1
	Problem = 3 // and found something wrong, or not over yet
)

// asJSON is the other format of what is printed, beside text.
const asJSON = "json"

// A Verb is one command.
type Verb struct {
	Word    string
	Args    string // what may follow
	Summary string
	Timeout time.Duration // for all of it
	Output  string        // text or json

	AddFlags func(*pflag.FlagSet)      // flags of its own; may be nil
	Examine  func(args []string) error // whether flags and arguments go together
	Wish     *control.Wish             // of a verb that can also be asked to edit the record: what it wants, once examined; nil of others
	Do       func(context.Context, *control.Client, io.Writer) (status int, err error)
}

func newVerb(word, args, summary string) *Verb {
	return &Verb{Word: word, Args: args, Summary: summary, Timeout: 10 * time.Second, Output: "text"}
}

// Define adds the flags of the verb to its command line, which takes them after arguments, too, and returns their names.
func (v *Verb) Define(c *commandline.Command) (names []string) {
	c.Mix()
	own := pflag.NewFlagSet(v.Word, pflag.ContinueOnError)
	own.Var(commandline.Positive(&v.Timeout), "timeout", "how long to wait for the node, in all")
	own.VarP(commandline.Choice(&v.Output, "text", asJSON), "o", "o", "`format` of the output: text or json")
	if v.AddFlags != nil {
		v.AddFlags(own)
	}
	own.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	c.Group(commandline.General, func(f *pflag.FlagSet) { f.AddFlagSet(own) })
	return names
}

// Ask carries out the verb at the socket of a node, and returns the exit status.
func (v *Verb) Ask(path string, stdout, stderr io.Writer) (status int) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), v.Timeout, fmt.Errorf("no answer for %v", v.Timeout))
	defer cancel()
	status, err := v.Do(ctx, control.NewClient(path), stdout)
	if err != nil {
		fmt.Fprintf(inert.Writer(stderr), "kube-proxy %s: %v\n", v.Word, err)
		return failed
	}
	return status
}

// print shows an answer: as JSON, or as text.
func (v *Verb) print(stdout io.Writer, answer any, text func(io.Writer)) error {
	if v.Output == asJSON {
		json, err := inert.Document(answer)
		if err != nil {
			return err
		}
		_, err = stdout.Write(json)
		return err
	}
	out := bufio.NewWriter(stdout) // below inert.Writer, which needs whole characters
	text(inert.Writer(out))
	return out.Flush()
}

// atMost is about more arguments than a verb takes.
func atMost(args []string, n int) error {
	if len(args) > n {
		return fmt.Errorf("unexpected argument: %s", commandline.OneLine(args[n]))
	}
	return nil
}
