package registry

import (
	"strconv"
	"unicode/utf8"
)

// How many bytes of outside data are shown. Quoting makes of one byte at most four, so a line may
// hold two of what Quote gives, and more only of the short ones.
const (
	maxPlain       = 63 + len("/") + 63 // as they are: any namespace and name that a master accepts
	maxQuoted      = 100                // by Quote
	maxQuotedShort = 40                 // of each item where several are shown
)

// Quote makes outside data safe to show in a log line or an error: quoted, without control
// characters, and cut to a bounded length (D47).
func Quote(s string) string { return quote(s, maxQuoted) }

// QuoteShort is Quote of an item where several are shown: it is cut sooner.
func QuoteShort(s string) string { return quote(s, maxQuotedShort) }

// quote is Quote with at most limit bytes of s.
func quote(s string, limit int) string {
	if len(s) <= limit {
		return strconv.Quote(s)
	}
	cut := limit
	for cut > limit-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut-- // not in the middle of a character
	}
	return strconv.Quote(s[:cut]) + "… (" + strconv.Itoa(len(s)) + " bytes)"
}

// QuoteUnlessPlain leaves s as it is when it can stand in a log line: short, and made of the
// characters that names of services are made of.
func QuoteUnlessPlain(s string) string {
	if s != "" && len(s) <= maxPlain && consistsOf(s, "-._/") {
		return s
	}
	return Quote(s)
}

// A Warning is something odd in a record that is used all the same. It is one line, safe to log.
type Warning string
