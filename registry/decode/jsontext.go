package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"unicode/utf8"

	"kubeproxy/registry"
)

// jsonSpace is what JSON takes for white space (RFC 8259, 2).
const jsonSpace = " \t\r\n"

// unmarshal is json.Unmarshal for a value found in the field named ("" for a whole record). Its
// errors are fit for an operator: they speak of fields and not of Go types, and are bounded.
func unmarshal(field string, value []byte, into any) error {
	err := json.Unmarshal(value, into)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		path := strings.Trim(field+"."+e.Field, ".")
		return fmt.Errorf("%s holds %s where %s is wanted", path, foundText(e.Value), wantedText(e.Type))
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not valid JSON: %w at byte %d", e, e.Offset)
	}
	return errors.New("not valid JSON: " + registry.Quote(err.Error()))
}

// isNull reports whether a field is null or not there, which package json takes for the same.
func isNull(raw json.RawMessage) bool { return raw == nil || string(raw) == "null" }

// elements yields the elements of an array in turn, as they are written. The array must be valid JSON.
func elements[T string | []byte](array T) iter.Seq[T] {
	return func(yield func(T) bool) {
		element, rest := cutValue(trim(array)[len("["):])
		for len(element) > 0 && yield(element) {
			element, rest = cutValue(rest)
		}
	}
}

// members yields the members of an object in turn: the key as it reads, and the value as it is written. The
// object must be valid JSON.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		key, rest := cutValue(trim(object)[len("{"):])
		for len(key) > 0 {
			var value []byte
			if value, rest = cutValue(rest); !yield(readKey(key), value) {
				return
			}
			key, rest = cutValue(rest)
		}
	}
}

// cutValue gives the first value or key in what is left of an array or an object, as it is written, and what is left
// after it. At the end it gives nothing.
func cutValue[T string | []byte](left T) (value, rest T) {
	depth, quoted := 0, false
	for i := 0; i < len(left); i++ {
		switch c := left[i]; {
		case quoted && c == '\\':
			i++ // what follows ends nothing
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[', c == '{':
			depth++
		case depth > 0 && (c == ']' || c == '}'):
			depth--
		case depth == 0 && (c == ',' || c == ':' || c == ']' || c == '}'):
			return trim(left[:i]), left[i+1:]
		}
	}
	return
}

// readKey reads a key. Of one without escapes it gives a part of what it was given.
func readKey(text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1]
	}
	key, _ := stringOf("", string(text)) // valid JSON, and a string: nothing is wrong with it
	return []byte(key)
}

// isKey reports whether a key names this field, which to package json it does in any letter case.
func isKey(key []byte, field string) bool { return bytes.EqualFold(key, []byte(field)) }

// trim cuts off white space. Valid JSON has no other control characters around a value.
func trim[T string | []byte](value T) T {
	for len(value) > 0 && value[0] <= ' ' {
		value = value[1:]
	}
	for len(value) > 0 && value[len(value)-1] <= ' ' {
		value = value[:len(value)-1]
	}
	return value
}

// pieceBytes is about how much of an array is decoded at one time.
const pieceBytes = 32 << 10

// eachOf decodes the array found in a field, and hands its elements to use, until that returns an error. It decodes a
// piece at a time: each "{}" of an array becomes a struct, and half a million of them at once were a hundred megabytes.
// elements are used again, so use must not keep them. A field that is not there, or null, has none.
func eachOf[T any](field string, array json.RawMessage, use func(*T) error) error {
	if array == nil {
		return nil
	}
	if array[0] != '[' {
		return unmarshal(field, array, new([]T)) // which says what is wrong with it
	}
	var decoded []T
	piece := []byte{'['}
	decode := func() error {
		clear(decoded[:cap(decoded)]) // or package json would mix what was there with what comes
		decoded = decoded[:0]
		if err := unmarshal(field, append(piece, ']'), &decoded); err != nil {
			return err
		}
		for i := range decoded {
			if err := use(&decoded[i]); err != nil {
				return err
			}
		}
		piece = piece[:1]
		return nil
	}
	for element := range elements([]byte(array)) {
		if len(piece) > 1 {
			piece = append(piece, ',')
		}
		if piece = append(piece, element...); len(piece) >= pieceBytes {
			if err := decode(); err != nil {
				return err
			}
		}
	}
	return decode()
}

// stringOf reads a string, found in a field or in an array there. Of one that is spelled as it reads it gives a
// part of what it was given.
func stringOf(field, element string) (string, error) {
	plain := len(element) >= 2 && element[0] == '"'
	for i := 0; plain && i < len(element); i++ {
		plain = element[i] < utf8.RuneSelf && element[i] != '\\'
	}
	if plain {
		return element[1 : len(element)-1], nil
	}
	var s *string // to tell null from the empty string
	if err := unmarshal(field, []byte(element), &s); err != nil {
		return "", err
	}
	if s == nil {
		return "", fmt.Errorf("%s holds null where a string is wanted", field)
	}
	return *s, nil
}

// readString reads the string found in a field. As with package json, null and a field that is not there change nothing.
func readString(field string, raw json.RawMessage, into *string) error {
	if isNull(raw) {
		return nil
	}
	s, err := stringOf(field, string(raw))
	*into = s
	return err
}

// foundText gives the JSON that package json found, as a noun. It says "number 80.5" of numbers
// that did not fit, however long they are.
func foundText(value string) string {
	if literal, ok := strings.CutPrefix(value, "number "); ok {
		return "the number " + registry.QuoteShort(literal)
	}
	switch value {
	case "array", "object":
		return "an " + value
	case "bool":
		return "a boolean"
	}
	return "a " + value
}

// wantedText gives the JSON that a Go type is read from, as a noun.
func wantedText(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Int64:
		return "a whole number"
	case reflect.Bool:
		return "a boolean"
	case reflect.Slice:
		return "an array"
	}
	return "an object"
}

// last is a T of which, among repeated keys, the last counts whole. Package json alone would mix
// them: it fills the elements of an array that the earlier key has left behind.
type last[T any] struct{ Value T }

// UnmarshalJSON forgets what was there and reads a new value.
func (l *last[T]) UnmarshalJSON(b []byte) error {
	var fresh T
	err := json.Unmarshal(b, &fresh)
	l.Value = fresh
	return err
}
