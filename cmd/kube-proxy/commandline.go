package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"kubeproxy/internal/takeover"
)

// words are the programs that the first argument chooses, in place of the proxy.
var words = map[string]func(args []string, stdout, stderr io.Writer) (status int){
	"check":    runCheck,
	"register": runRegister,
	"get":      runGet,
	"rm":       runRemove,
}

// begin reads a command line, and reports whether the program is done by that: it was asked for help or the version, or the command
// line makes no sense. Then status is its exit status.
func begin(parse func(*pflag.FlagSet, []string) error, flags *pflag.FlagSet, version *versionValue, args []string, stdout, stderr io.Writer) (status int, done bool) {
	switch err := parse(flags, args); {
	case errors.Is(err, pflag.ErrHelp):
		usage(stderr, flags)
		return exitDone, true
	case err != nil:
		fmt.Fprintln(stderr, err)
		name, _, _ := strings.Cut(flags.Name(), " [")
		fmt.Fprintf(stderr, "(%s -help explains the flags)\n", name) // v0.4 printed the usage: so many lines that the error was out of sight
		return exitUsage, true
	}
	if *version != versionOff {
		printVersion(*version, stdout)
		return exitDone, true
	}
	return 0, false
}

// parse reads the command line. An error is one line for the user, or [pflag.ErrHelp].
func (o *options) parse(flags *pflag.FlagSet, args []string) error {
	return parse(flags, &o.version, args, func() error {
		if flags.NArg() > 0 { // v0.4 dropped what it did not understand here, flags included
			return fmt.Errorf("unexpected argument: %s", oneLine(flags.Arg(0)))
		}
		return o.contradiction()
	})
}

// parse reads flags, and then looks whether they go together, and at the arguments that are no flags.
//
// Asked for the version, it does not look any further than v0.4 did: that is no concern of somebody who wants to know the version.
func parse(flags *pflag.FlagSet, version *versionValue, args []string, examine func() error) error {
	if err := flags.Parse(normalise(flags, args)); err != nil {
		return inOldWords(err)
	}
	if *version != versionOff {
		return nil
	}
	return examine()
}

// contradiction tells what about the options cannot be done together, if anything.
func (o *options) contradiction() error {
	if o.proxy.DialTimeout > o.proxy.DialTotalTimeout {
		return fmt.Errorf("-dial_timeout (%v) is more than -dial_total_timeout (%v)", o.proxy.DialTimeout, o.proxy.DialTotalTimeout)
	}
	if err := cmp.Or(o.limitsContradiction(), o.operatorsContradiction()); err != nil {
		return err
	}
	if o.takeover != "" {
		if err := takeover.CheckPath(o.takeover); err != nil {
			return fmt.Errorf("-takeover: %w", err)
		}
	}
	return o.source.contradiction()
}

// inOldWords puts an error of pflag in the words of package flag, which were v0.4's.
func inOldWords(err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return pflag.ErrHelp
	}
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return fmt.Errorf("flag provided but not defined: -%s", oneLine(e.GetSpecifiedName()))
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("flag needs an argument: -%s", e.GetFlag().Name)
	}
	if e, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		return fmt.Errorf("bad flag syntax: %s", oneLine(e.GetSpecifiedFlag()))
	}
	e, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	reason := e.Unwrap()
	if number, ok := errors.AsType[*strconv.NumError](reason); ok {
		reason = number.Err // the rest of it says the value again
	}
	if e.GetFlag().NoOptDefVal != "" { // a flag that is true without a value: a boolean
		return fmt.Errorf("invalid boolean value %q for -%s: %w", e.GetValue(), e.GetFlag().Name, reason)
	}
	return fmt.Errorf("invalid value %q for flag -%s: %w", e.GetValue(), e.GetFlag().Name, reason)
}

// oneLine gives s as it is when it can be shown so, else quoted.
func oneLine(s string) string {
	if quoted := strconv.Quote(s); quoted != `"`+s+`"` {
		return quoted
	}
	return s
}

// usage explains the flags, in the form that v0.4's operators type them.
func usage(w io.Writer, flags *pflag.FlagSet) {
	fmt.Fprintf(w, "Usage of %s:\n", flags.Name())
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, text := pflag.UnquoteUsage(f)
		if f.NoOptDefVal == "" && f.DefValue != "" {
			text += " (default " + f.DefValue + ")"
		} else if f.DefValue == "true" {
			text += " (default true; =false turns it off)"
		}
		fmt.Fprintf(table, "  -%s %s\t%s\n", f.Name, value, text)
	})
	table.Flush()
}
