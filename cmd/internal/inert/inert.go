package inert

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Shows reports whether a terminal only shows a character.
func Shows(r rune) bool { return strconv.IsPrint(r) || r == '\n' || r == '\t' }

// Document writes a value as JSON in several lines.
func Document(value any) ([]byte, error) { return marshal(value, "  ") }

// Line writes a value as JSON in one line, with its end.
func Line(value any) ([]byte, error) { return marshal(value, "") }

func marshal(value any, indent string) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return escaped(text.Bytes()), nil
}

// escaped escapes characters of JSON that are not only shown. They are inside strings, where every character may be escaped.
func escaped(text []byte) []byte {
	if bytes.IndexFunc(text, func(r rune) bool { return !Shows(r) }) < 0 {
		return text
	}
	out := make([]byte, 0, len(text)+64)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case Shows(r):
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

// Writer returns a writer that shows a question mark in place of each character that a terminal might take for a command. Each write has
// to hold whole characters.
func Writer(to io.Writer) io.Writer { return writer{to} }

type writer struct{ to io.Writer }

func (w writer) Write(text []byte) (int, error) {
	shown := bytes.Map(func(r rune) rune {
		if Shows(r) && r != utf8.RuneError {
			return r
		}
		return '?'
	}, text)
	if _, err := w.to.Write(shown); err != nil {
		return 0, err
	}
	return len(text), nil
}
