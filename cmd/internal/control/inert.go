package control

import (
	"bytes"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// What others wrote into records, and what programs answer, is shown in terminals. There a control character can be a command, and a bidirectional
// one can make a text read as another. So none gets there: JSON escapes them, and text shows a question mark.

// isInert reports whether a terminal only shows a character.
func isInert(r rune) bool { return strconv.IsPrint(r) || r == '\n' || r == '\t' }

// inertJSON escapes characters of JSON that are not inert. They are inside strings, where every character may be escaped.
func inertJSON(text []byte) []byte {
	if bytes.IndexFunc(text, func(r rune) bool { return !isInert(r) }) < 0 {
		return text
	}
	out := make([]byte, 0, len(text)+64)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case isInert(r):
			out = append(out, text[:size]...)
		case r >= 0x10000:
			high, low := utf16.EncodeRune(r)
			out = appendEscape(appendEscape(out, high), low)
		default:
			out = appendEscape(out, r)
		}
		text = text[size:]
	}
	return out
}

func appendEscape(out []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(out, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// InertWriter returns a writer that shows a question mark in place of each character that a terminal might take for a command. Each write has
// to hold whole characters.
func InertWriter(to io.Writer) io.Writer { return inert{to} }

type inert struct{ to io.Writer }

func (w inert) Write(text []byte) (int, error) {
	shown := bytes.Map(func(r rune) rune {
		if isInert(r) && r != utf8.RuneError {
			return r
		}
		return '?'
	}, text)
	if _, err := w.to.Write(shown); err != nil {
		return 0, err
	}
	return len(text), nil
}
