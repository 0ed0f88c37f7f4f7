package config

import (
	"strconv"
	"strings"
	"testing"
)

func TestOneLineIsShortAndPrintable(t *testing.T) {
	for _, s := range []string{"plain", "two\nlines\x1b[31m", strings.Repeat("é", 1000), "\xff\xfe"} {
		got := OneLine(s)
		if strings.ContainsFunc(got, func(r rune) bool { return !strconv.IsPrint(r) }) || len(got) > maxLine+len("…") || OneLine(got) != got && len(got) <= maxLine {
			t.Errorf("%q became %q", s, got)
		}
	}
}
