package commandline

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"
)

// A Manual explains the commands of a program.
type Manual struct {
	Commands []*Command // the program itself first, then its sub-commands
	Topics   []Topic    // of all flags, in the order of reading; those without effect last
	Common   []string   // the flags that most users need
	Summary  string     // what the program does, as the title of its man page
	Date     string     // of the man page
	Sections string     // further sections of the man page, in mdoc
}

// A Topic is a group of flags.
type Topic struct {
	Name  string // one word
	Title string // what the flags are about
}

// program is the command line of the program itself.
func (m *Manual) program() *Command { return m.Commands[0] }

// word returns the word that chooses a command.
func (m *Manual) word(c *Command) string {
	return strings.TrimPrefix(strings.TrimPrefix(c.Name, m.program().Name), " ")
}

// Words returns the words that the first argument may be.
func (m *Manual) Words() []string {
	words := []string{"help"}
	for _, c := range m.Commands[1:] {
		words = append(words, m.word(c))
	}
	return words
}

// Usage explains a command line: the program in short, a sub-command with all its flags.
func (m *Manual) Usage(w io.Writer, c *Command) {
	if c.Name == m.program().Name {
		m.overview(w)
		return
	}
	fmt.Fprintf(w, "Usage of %s:\n\n  %s\n\nIt %s.\n", c.Name, m.synopsis(c), c.Summary)
	for _, topic := range m.Topics {
		section(w, title(topic), c, m.of(c, topic))
	}
}

// Help answers "help" with these arguments: with the overview, a topic, a flag, a sub-command, all flags, the man page or completions.
// An error names what was meant; [Manual.Complain] prints it.
func (m *Manual) Help(w io.Writer, args []string) error {
	if len(args) == 0 {
		m.overview(w)
		return nil
	}
	if len(args) == 2 && args[0] == "completion" {
		return m.completion(w, args[1])
	}
	if len(args) > 1 {
		return Unexpected(args[1], "", m.pages()...)
	}
	switch args[0] {
	case "all":
		m.all(w)
	case "man":
		m.man(w)
	case "completion":
		return errors.New("completions for which shell? bash, zsh or fish")
	default:
		return m.page(w, args[0])
	}
	return nil
}

// Complain prints an error of Help.
func (m *Manual) Complain(w io.Writer, err error) {
	complain(w, err, m.program().Name+" help lists the topics")
}

// pages are the words that help takes, beside the names of flags.
func (m *Manual) pages() []string {
	pages := []string{"all", "man", "completion"}
	for _, t := range m.Topics {
		pages = append(pages, t.Name)
	}
	return append(pages, m.Words()...)
}

// page explains a topic, a sub-command or a flag.
func (m *Manual) page(w io.Writer, name string) error {
	if i := slices.IndexFunc(m.Topics, func(t Topic) bool { return t.Name == name }); i >= 0 {
		m.topic(w, m.Topics[i])
		return nil
	}
	if name == "help" {
		m.overview(w)
		return nil
	}
	for _, c := range m.Commands[1:] {
		if m.word(c) == name {
			m.Usage(w, c)
			return nil
		}
	}
	var flags []string
	found := false
	bare := strings.TrimPrefix(strings.TrimPrefix(name, "-"), "-")
	for _, c := range m.Commands {
		flags = append(flags, flagNames(c.Flags)...)
		f := lookup(c.Flags, bare)
		if f == nil || f.Hidden {
			continue
		}
		have := m.having(c, f)
		if have[0] != c {
			continue // explained there
		}
		found = true
		i := slices.IndexFunc(m.Topics, func(t Topic) bool { return t.Name == c.topics[f.Name] })
		section(w, m.heading(m.Topics[i], have), c, []*pflag.Flag{f})
	}
	if found {
		return nil
	}
	wrong := &mistake{text: "there is no topic, command or flag called " + OneLine(name)}
	if wrong.meant = closest(name, m.pages()); wrong.meant == "" || strings.HasPrefix(name, "-") {
		if wrong.meant = closest(string(underscored(nil, bare)), flags); wrong.meant != "" {
			wrong.meant = "-" + wrong.meant
		}
	}
	return wrong
}

// overview says what the program can do, which flags most users need, and where there is more.
func (m *Manual) overview(w io.Writer) {
	p := m.program()
	fmt.Fprintf(w, "Usage of %s:\n\n", p.Name)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range m.Commands {
		fmt.Fprintf(table, "  %s\t%s\n", m.synopsis(c), c.Summary)
	}
	fmt.Fprintf(table, "  %s help [WORD]\texplains a topic, a flag or a command; all: every flag\n", p.Name)
	fmt.Fprintf(table, "  %s help man\tprints the man page\n", p.Name)
	fmt.Fprintf(table, "  %s help completion bash|zsh|fish\tprints completions for a shell\n", p.Name)
	table.Flush()
	var common []*pflag.Flag
	for _, name := range m.Common {
		common = append(common, p.Flags.Lookup(name))
	}
	section(w, "The flags that most users need", p, common)
	fmt.Fprintf(w, "\nTopics (%s help TOPIC):\n\n", p.Name)
	for _, t := range m.Topics {
		fmt.Fprintf(table, "  %s\t%s\n", t.Name, t.Title)
	}
	table.Flush()
}

// all explains every flag of every command.
func (m *Manual) all(w io.Writer) {
	for _, t := range m.Topics {
		m.topic(w, t)
	}
}

// topic explains the flags of a topic: those of the program, and those that only sub-commands have.
func (m *Manual) topic(w io.Writer, t Topic) {
	for _, b := range m.blocks(t) {
		section(w, b.title, b.first, b.flags)
	}
}

// A block is flags of a topic that are explained under one title: the same commands have all of them, with the same meaning and default.
type block struct {
	title string
	first *Command // of those that have them
	flags []*pflag.Flag
}

// blocks returns the blocks of a topic. Each flag of each command is in one of them.
func (m *Manual) blocks(t Topic) (all []block) {
	for _, c := range m.Commands {
		for _, f := range m.of(c, t) {
			have := m.having(c, f)
			if have[0] != c {
				continue // explained there
			}
			title := m.heading(t, have)
			i := slices.IndexFunc(all, func(b block) bool { return b.title == title })
			if i < 0 {
				i = len(all)
				all = append(all, block{title: title, first: c})
			}
			all[i].flags = append(all[i].flags, f)
		}
	}
	return all
}

// having returns the commands that have a flag of a command with the same meaning and default, in their order.
func (m *Manual) having(c *Command, f *pflag.Flag) (have []*Command) {
	for _, d := range m.Commands {
		other := d.Flags.Lookup(f.Name)
		if other != nil && !other.Hidden && other.Usage == f.Usage && d.defaultOf(other, false) == c.defaultOf(f, false) {
			have = append(have, d)
		}
	}
	return have
}

// of returns the flags of a command that belong to a topic, in the order of their names.
func (m *Manual) of(c *Command, t Topic) (flags []*pflag.Flag) {
	c.Flags.VisitAll(func(f *pflag.Flag) {
		if c.topics[f.Name] == t.Name && !f.Hidden {
			flags = append(flags, f)
		}
	})
	return flags
}

func (m *Manual) synopsis(c *Command) string {
	return strings.TrimSpace(c.Name + " [flags] " + c.Args)
}

func title(t Topic) string { return strings.ToUpper(t.Name[:1]) + t.Name[1:] + ": " + t.Title }

// heading is the title over flags of a topic that these commands have. It names them, if the program itself is not among them.
func (m *Manual) heading(t Topic, have []*Command) string {
	if have[0] == m.program() {
		return title(t)
	}
	var words []string
	for _, c := range have {
		words = append(words, m.word(c))
	}
	last := len(words) - 1
	if last > 0 {
		words[last-1] += " and " + words[last]
		words = words[:last]
	}
	return title(t) + " (of " + m.program().Name + " " + strings.Join(words, ", ") + ")"
}

// section explains some flags of a command under a title.
func section(w io.Writer, title string, c *Command, flags []*pflag.Flag) {
	if len(flags) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n\n", title)
	for _, f := range flags {
		word, text := value(f)
		fmt.Fprintln(w, strings.TrimRight("  -"+f.Name+" "+word, " "))
		if d := c.defaultOf(f, true); d != "" {
			text += " (default " + d + ")"
		}
		for _, line := range wrapped(text, 80-len(indent)) {
			fmt.Fprintln(w, indent+line)
		}
	}
}

const indent = "      "

// defaultOf returns what a flag is if it is not given, "" for nothing: a value, or a formula, with its value on this machine if here.
func (c *Command) defaultOf(f *pflag.Flag, here bool) string {
	if d, ok := c.derived[f.Name]; ok {
		if here && d.here != "" {
			return d.formula + ": " + d.here + " here"
		}
		return d.formula
	}
	switch {
	case isBoolean(f) && f.DefValue == "true":
		return "true; =false turns it off"
	case isBoolean(f):
		return ""
	}
	return f.DefValue
}

// wrapped breaks a text into lines of at most so many characters, unless a word is longer.
func wrapped(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}
