package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
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
	return errors.New("not valid JSON: " + Quote(err.Error()))
}

// isNull tells whether a field is null or not there, which package json takes for the same.
func isNull(raw json.RawMessage) bool { return raw == nil || string(raw) == "null" }

// foundText gives the JSON that package json found, as a noun. It says "number 80.5" of numbers
// that did not fit, however long they are.
func foundText(value string) string {
	if literal, ok := strings.CutPrefix(value, "number "); ok {
		return "the number " + quote(literal, maxQuotedShort)
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
	case reflect.Slice:
		return "an array"
	}
	return "an object"
}

// last is a T of which, among repeated keys, the last counts whole. Package json alone would mix
// them: it fills the elements of an array that the earlier key has left behind.
type last[T any] struct{ value T }

// UnmarshalJSON forgets what was there and reads a new value.
func (l *last[T]) UnmarshalJSON(b []byte) error {
	var fresh T
	err := json.Unmarshal(b, &fresh)
	l.value = fresh
	return err
}
