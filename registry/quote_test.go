package registry

import (
	"strings"
	"testing"
)

func TestQuote(t *testing.T) {
	a99, a100 := strings.Repeat("a", 99), strings.Repeat("a", 100)
	for _, c := range []struct{ in, want string }{
		{"", `""`},
		{"frontend", `"frontend"`},
		{"x\nE1120 00:00:00.000000 1 fake.go:1] \x1b[31m\x00", `"x\nE1120 00:00:00.000000 1 fake.go:1] \x1b[31m\x00"`},
		{"日本語", `"日本語"`},
		{"\u2028\u202e\ufeff", `"\u2028\u202e\ufeff"`}, // line separator, direction override, byte order mark
		{"\xff", `"\xff"`},
		{a100, `"` + a100 + `"`},
		{a100 + "b", `"` + a100 + `"… (101 bytes)`},
		{a99 + "éb", `"` + a99 + `"… (102 bytes)`}, // not through the middle of a character
		{strings.Repeat("é", 60), `"` + strings.Repeat("é", 50) + `"… (120 bytes)`},
		{a99[:98] + "€b", `"` + a99[:98] + `"… (102 bytes)`},
		{a99[:97] + "😀b", `"` + a99[:97] + `"… (102 bytes)`},
		{strings.Repeat("\x80", 101), `"` + strings.Repeat(`\x80`, 96) + `"… (101 bytes)`}, // no character to spare
	} {
		got := Quote(c.in)
		checkLine(t, got)
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.in, got, c.want)
		}
	}
}
