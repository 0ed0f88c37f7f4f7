package commandline

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"kubeproxy/config/remote"
)

// A Command is one command line. [New] makes it, with the flags -help and -version.
type Command struct {
	Name    string // as it is typed: "kube-proxy check"
	Args    string // what may follow the flags; may be empty
	Summary string // what the command does, in one line
	Flags   *pflag.FlagSet
	Version Version                          // whether the version is asked for
	Examine func(flags *pflag.FlagSet) error // whether flags and arguments go together

	mixed   bool               // flags may stand after arguments
	topics  map[string]string  // by flag
	derived map[string]derived // by flag
}

// derived is a default that follows from something else.
type derived struct {
	formula string
	here    string // its value on this machine
}

// General is the topic of the flags that each command has.
const General = "general"

// New returns a command without flags of its own.
func New(name, args, summary string, examine func(*pflag.FlagSet) error) *Command {
	c := &Command{Name: name, Args: args, Summary: summary, Examine: examine,
		Flags: pflag.NewFlagSet(name, pflag.ContinueOnError), topics: make(map[string]string), derived: make(map[string]derived)}
	c.Flags.SetInterspersed(false)
	c.Flags.SetNormalizeFunc(underscored)
	boolean := func(v pflag.Value, name, shorthand, usage string) {
		c.Flags.VarPF(v, name, shorthand, usage).NoOptDefVal = "true"
	}
	c.Group(General, func(*pflag.FlagSet) {
		boolean(helpValue{}, "help", "h", "explain the flags and exit")
		boolean(&c.Version, "version", "", "print the version and exit; =raw prints all details")
	})
	return c
}

// Mix lets flags stand after arguments, too.
func (c *Command) Mix() {
	c.mixed = true
	c.Flags.SetInterspersed(true)
}

// Group gives a topic to the flags that add defines.
func (c *Command) Group(topic string, add func(*pflag.FlagSet)) {
	add(c.Flags)
	c.Flags.VisitAll(func(f *pflag.Flag) {
		if _, known := c.topics[f.Name]; !known {
			c.topics[f.Name] = topic
		}
	})
}

// Move gives other topics to flags that have one.
func (c *Command) Move(topic string, flags ...string) {
	for _, name := range flags {
		c.topics[name] = topic
	}
}

// Derive says how the default of a flag is derived, and what it is on this machine.
func (c *Command) Derive(flag, formula, here string) {
	c.derived[flag] = derived{formula, here}
}

// Show keeps the flags that help does not show to all but these.
func (c *Command) Show(names []string) {
	shown := make(map[string]bool)
	for _, name := range names {
		shown[name] = true
	}
	c.Flags.VisitAll(func(f *pflag.Flag) { f.Hidden = !shown[f.Name] })
}

// Parse reads the flags, and then examines whether they go together. An error is one line for the user, or [pflag.ErrHelp].
//
// Asked for the version, it does not examine them: as in v0.4, the version does not depend on other flags.
func (c *Command) Parse(args []string) error {
	if err := c.Flags.Parse(normalise(c.Flags, args, c.mixed)); err != nil {
		return inOldWords(c.Flags, err)
	}
	if c.Version != VersionOff {
		return nil
	}
	return c.Examine(c.Flags)
}

// Complain prints an error of Parse: one line that says what is wrong, and one that says where to read more.
func (c *Command) Complain(w io.Writer, err error) {
	complain(w, err, c.Name+" -help explains the flags")
}

func complain(w io.Writer, err error, more string) {
	fmt.Fprintln(w, err)
	if m, ok := errors.AsType[*mistake](err); ok && m.meant != "" {
		more = "did you mean " + m.meant + "? " + more
	}
	fmt.Fprintf(w, "(%s)\n", more) // v0.4 printed all flags here: so many lines that the error was out of sight
}

// A mistake is an error about a name, and the name that was meant, if there is a similar one.
type mistake struct {
	text, meant string
}

func (m *mistake) Error() string { return m.text }

// Unexpected is the error about an argument that is not a flag. It may have been meant as one of these words.
func Unexpected(arg, program string, words ...string) error {
	m := &mistake{text: "unexpected argument: " + OneLine(remote.Redact(arg))}
	if word := closest(arg, words); word != "" {
		m.meant = program + " " + word
	}
	return m
}

// inOldWords puts an error of pflag in the words of package flag, which were v0.4's.
func inOldWords(flags *pflag.FlagSet, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return pflag.ErrHelp
	}
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		m := &mistake{text: "flag provided but not defined: -" + OneLine(e.GetSpecifiedName())}
		if name := closest(string(underscored(flags, e.GetSpecifiedName())), flagNames(flags)); name != "" {
			m.meant = "-" + name
		}
		return m
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("flag needs an argument: -%s", e.GetFlag().Name)
	}
	if e, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		return fmt.Errorf("bad flag syntax: %s", OneLine(e.GetSpecifiedFlag()))
	}
	e, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	reason := e.Unwrap()
	if number, ok := errors.AsType[*strconv.NumError](reason); ok {
		reason = number.Err // the rest of it says the value again
	}
	value := remote.Redact(e.GetValue())
	if isBoolean(e.GetFlag()) && e.GetFlag().Value.Type() == "bool" {
		return fmt.Errorf("invalid boolean value %q for -%s: %w", value, e.GetFlag().Name, reason)
	}
	return fmt.Errorf("invalid value %q for flag -%s: %w", value, e.GetFlag().Name, reason)
}

// isBoolean reports whether a flag is true without a value.
func isBoolean(f *pflag.Flag) bool { return f.NoOptDefVal != "" }

// flagNames are the names of the flags that help shows.
func flagNames(flags *pflag.FlagSet) []string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// OneLine returns s as it is if it can be shown so, else quoted.
func OneLine(s string) string {
	if quoted := strconv.Quote(s); quoted != `"`+s+`"` {
		return quoted
	}
	return s
}

// value returns the word for the value of a flag, and its help without the quotes around that word.
func value(f *pflag.Flag) (word, text string) {
	word, text = pflag.UnquoteUsage(f)
	if isBoolean(f) {
		word = ""
	}
	return word, strings.ReplaceAll(text, "`", "")
}
