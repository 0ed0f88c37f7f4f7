package main

import (
	"fmt"
	"strings"
)

// anything stands for any text within its line.
const anything = "…"

// mismatch compares output with what is expected, line by line. It gives the index of the first line
// that is not as expected, and what is wrong with it; or an empty problem. Blanks at the end of a line
// do not count.
func mismatch(want, got []string) (line int, problem string) {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			return i, fmt.Sprintf("want %q; got no more lines", want[i])
		case i >= len(want):
			return i, fmt.Sprintf("want no more lines; got %q", got[i])
		case !matches(strings.TrimRight(want[i], " \t"), strings.TrimRight(got[i], " \t\r")):
			return i, fmt.Sprintf("want %q; got %q", want[i], got[i])
		}
	}
	return 0, ""
}

// matches reports whether a line is as expected.
func matches(want, got string) bool {
	parts := strings.Split(want, anything)
	first, rest := parts[0], parts[1:]
	got, ok := strings.CutPrefix(got, first)
	if !ok || len(rest) == 0 {
		return ok && got == ""
	}
	for _, part := range rest[:len(rest)-1] { // each as early as it can stand
		i := strings.Index(got, part)
		if i < 0 {
			return false
		}
		got = got[i+len(part):]
	}
	return strings.HasSuffix(got, rest[len(rest)-1])
}
