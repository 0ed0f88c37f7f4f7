package commandline

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// man prints the man page in mdoc(7), the same on every machine: NAME, SYNOPSIS and DESCRIPTION, each topic with its flags, and then the
// sections of the manual.
func (m *Manual) man(w io.Writer) {
	p := m.program()
	fmt.Fprintf(w, ".Dd %s\n.Dt %s 8\n.Os Linux\n.Sh NAME\n.Nm %s\n.Nd %s\n.Sh SYNOPSIS\n", m.Date, roff(strings.ToUpper(p.Name)), roff(p.Name), roff(m.Summary))
	for _, c := range m.Commands {
		fmt.Fprintf(w, ".Nm %s\n", roff(p.Name))
		if word := m.word(c); word != "" {
			fmt.Fprintf(w, ".Cm %s\n", roff(word))
		}
		fmt.Fprintln(w, ".Op Ar flags")
		if c.Args != "" {
			fmt.Fprintf(w, ".Li %q\n", roff(c.Args))
		}
	}
	fmt.Fprintf(w, ".Nm %s\n.Cm help\n.Op Ar topic | flag | command | Cm all | Cm man\n", roff(p.Name))
	fmt.Fprintf(w, ".Nm %s\n.Cm help completion\n.Cm bash | zsh\n", roff(p.Name))
	fmt.Fprintf(w, ".Sh DESCRIPTION\n")
	for _, c := range m.Commands {
		if c == p {
			fmt.Fprintf(w, ".Nm\n%s\n", text(c.Summary+"."))
			continue
		}
		fmt.Fprintf(w, ".Pp\n.Nm\n.Cm %s\n%s\n", roff(m.word(c)), text(c.Summary+"."))
	}
	fmt.Fprintf(w, ".Sh FLAGS\n%s\n", "A name takes one dash or two, and its words are joined by _ or \\-.\nA value follows after = or as the next argument; true and false need the = sign.\n"+
		"The last use of a flag wins, and flags that hold lists add to them.\nTimes need a unit, as in 90s or 1h30m.")
	for _, t := range m.Topics {
		m.manTopic(w, t)
	}
	fmt.Fprintln(w, strings.TrimSpace(m.Sections))
}

// manTopic prints the flags of a topic: those of the program, and those that only sub-commands have.
func (m *Manual) manTopic(w io.Writer, t Topic) {
	for _, b := range m.blocks(t) {
		fmt.Fprintf(w, ".Ss %s\n.Bl -tag -width Ds\n", roff(b.title))
		for _, f := range b.flags {
			word, help := value(f)
			fmt.Fprintf(w, ".It Fl %s", roff(f.Name))
			if word != "" {
				fmt.Fprintf(w, " Ns = Ns Ar %q", roff(word))
			}
			if d := b.first.defaultOf(f, false); d != "" {
				help += " (default " + d + ")"
			}
			fmt.Fprintf(w, "\n%s\n", text(help))
		}
		fmt.Fprintln(w, ".El")
	}
}

// aMacro is a word that mdoc would take as a macro among the arguments of another one.
var aMacro = regexp.MustCompile(`^[A-Z%][a-z0-9A-Z]$`)

// aFlag is the dash before the name of a flag. As a hyphen it could end a line, and a terminal might show a character that no shell takes.
var aFlag = regexp.MustCompile(`(^|[ (])-`)

// roff returns words as an argument of a macro: as they are.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, `"`, `\(dq`).Replace(s)
	if aMacro.MatchString(s) || len(s) == 1 {
		return `\&` + s
	}
	return s
}

// text returns a paragraph for the page, which mdoc fills. A line must not begin with a dot or a quote, which begin macros.
func text(s string) string {
	var b strings.Builder
	s = aFlag.ReplaceAllString(strings.ReplaceAll(s, `\`, `\e`), `$1\-`)
	for i, line := range wrapped(s, 78) {
		if i > 0 {
			b.WriteByte('\n')
		}
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			b.WriteString(`\&`)
		}
		b.WriteString(line)
	}
	return b.String()
}
