package programtest

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	macros  = strings.Fields("Dd Dt Os Sh Ss Nm Nd Op Cm Ar Li Pp Bl It El Bd Ed Fl Pa Dv Xr Dq")
	escapes = regexp.MustCompile(`\\(?:e|&|-|\(dq)`)
	first   = []string{"NAME", "SYNOPSIS", "DESCRIPTION"}
)

// CheckManPage reports what is wrong with a man page, on machines without mandoc, too: unknown macros and escapes, lists and displays that
// do not end, quotes that do not match, missing sections, blank lines, blanks at the end of a line.
func CheckManPage(t testing.TB, page string) {
	t.Helper()
	var open []string // blocks that have not ended
	var sections []string
	for n, line := range strings.Split(strings.TrimSuffix(page, "\n"), "\n") {
		wrong := func(what string) { t.Helper(); t.Errorf("line %d %s: %q", n+1, what, line) }
		literal := len(open) > 0 && open[len(open)-1] == "Bd"
		switch {
		case strings.TrimRight(line, " \t") != line:
			wrong("ends with a blank")
		case line == "" && !literal:
			wrong("is blank")
		case strings.HasPrefix(line, "'"):
			wrong("begins with a quote, which begins a request")
		case strings.Contains(escapes.ReplaceAllString(line, ""), `\`):
			wrong("has an unknown escape")
		}
		rest, isMacro := strings.CutPrefix(line, ".")
		if !isMacro {
			continue
		}
		macro, args, _ := strings.Cut(rest, " ")
		switch {
		case !slices.Contains(macros, macro):
			wrong("has an unknown macro")
		case strings.Count(args, `"`)%2 != 0:
			wrong("has a quote without its counterpart")
		case macro == "Bl" || macro == "Bd":
			open = append(open, macro)
		case macro == "El" || macro == "Ed":
			if last := len(open) - 1; last < 0 || open[last][0] != 'B' || open[last][1:] != macro[1:] {
				wrong("ends what has not begun")
			} else {
				open = open[:last]
			}
		case macro == "It" && !slices.Contains(open, "Bl"):
			wrong("is an item without a list")
		case macro == "Sh":
			sections = append(sections, args)
		}
	}
	if len(open) > 0 {
		t.Errorf("these have no end: %q", open)
	}
	if !strings.HasPrefix(page, ".Dd ") || len(sections) < len(first) || !slices.Equal(sections[:len(first)], first) {
		t.Errorf("the page does not begin with .Dd and the sections %q: it has %q", first, sections)
	}
}
