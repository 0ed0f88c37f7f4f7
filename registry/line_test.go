package registry

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// checkLine holds a text to the promise for errors and names.
func checkLine(t testing.TB, s string) {
	t.Helper()
	bad := func(r rune) bool { return !strconv.IsPrint(r) }
	if s == "" || len(s) > 1000 || !utf8.ValidString(s) || strings.ContainsFunc(s, bad) {
		t.Errorf("not one printable line of 1 to 1000 bytes, but %d: %q", len(s), s)
	}
}
