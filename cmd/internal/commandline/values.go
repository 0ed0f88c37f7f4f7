package commandline

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// A List is a flag that holds a list: values are split at commas, and each use of the flag adds to it. Blanks are trimmed. v0.4 kept
// those of "http://a:1, http://b:1", and the second address never worked.
type List []string

func (l *List) Set(s string) error {
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item == "" {
			return errors.New("value should not be an empty string")
		}
		*l = append(*l, item)
	}
	return nil
}

func (l *List) String() string { return strings.Join(*l, ",") }
func (l *List) Type() string   { return "list" }

// IsList says that the flag may have several values.
func (l *List) IsList() {}

// A duration is a flag that sets a time span, which is never negative.
type duration struct {
	*time.Duration
	zero  bool          // zero is allowed
	least time.Duration // of other values
}

// Positive is a flag that sets d to more than zero.
func Positive(d *time.Duration) pflag.Value { return duration{Duration: d} }

// AtLeast is a flag that sets d to least or more.
func AtLeast(least time.Duration, d *time.Duration) pflag.Value {
	return duration{Duration: d, least: least}
}

// ZeroOr is a flag that sets d to zero, or to least or more.
func ZeroOr(least time.Duration, d *time.Duration) pflag.Value {
	return duration{Duration: d, zero: true, least: least}
}

func (d duration) Set(s string) error {
	v, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return err
	case v < 0:
		return errors.New("must not be negative")
	case v == 0 && !d.zero:
		return errors.New("must be more than zero")
	case v != 0 && v < d.least:
		return fmt.Errorf("must be at least %v", d.least)
	}
	*d.Duration = v
	return nil
}

func (d duration) Type() string { return "duration" }

// A Count is a flag that holds a number of things, 0 for the default.
type Count int

func (c *Count) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 32)
	switch {
	case err != nil:
		return err
	case n < 0:
		return errors.New("must not be negative")
	}
	*c = Count(n)
	return nil
}

func (c *Count) String() string { return strconv.Itoa(int(*c)) }
func (c *Count) Type() string   { return "number" }

// A chooser is a flag with a few values, which completions offer.
type chooser interface{ Choices() []string }

// A choice is a flag that holds one of a few words.
type choice[T ~string] struct {
	word  *T
	words []T
}

// Choice is a flag that sets word to one of these words.
func Choice[T ~string](word *T, words ...T) pflag.Value { return choice[T]{word, words} }

func (c choice[T]) Set(s string) error {
	if slices.Contains(c.words, T(s)) {
		*c.word = T(s)
		return nil
	}
	words, last := c.Choices(), len(c.words)-1
	return fmt.Errorf("must be %s or %s", strings.Join(words[:last], ", "), words[last])
}

func (c choice[T]) String() string {
	if c.word == nil {
		return "" // pflag asks a zero value
	}
	return string(*c.word)
}

func (c choice[T]) Type() string { return "word" }

// Choices returns the words.
func (c choice[T]) Choices() (words []string) {
	for _, w := range c.words {
		words = append(words, string(w))
	}
	return words
}

// A Version is the flag -version: a boolean that may also be "raw".
type Version uint8

// What -version asks for.
const (
	VersionOff Version = iota
	VersionShort
	VersionRaw
)

func (v *Version) Set(s string) error {
	if s == "raw" {
		*v = VersionRaw
		return nil
	}
	on, err := strconv.ParseBool(s)
	switch {
	case err != nil:
		return err
	case on:
		*v = VersionShort
	default:
		*v = VersionOff
	}
	return nil
}

func (v *Version) String() string { return [...]string{"false", "true", "raw"}[*v] }
func (v *Version) Type() string   { return "bool" }

// A helpValue is the flag -help. Set gives [pflag.ErrHelp], which ends the parsing right there.
type helpValue struct{}

func (helpValue) Set(string) error { return pflag.ErrHelp }
func (helpValue) String() string   { return "false" }
func (helpValue) Type() string     { return "bool" }
