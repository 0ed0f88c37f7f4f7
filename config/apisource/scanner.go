package apisource

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// A scanner cuts a response into JSON values as it comes, so that a list is never held whole, and a value that is longer than
// allowed is not held at all. It finds where a value ends, and leaves it to others whether the value is valid.
type scanner struct {
	r    *bufio.Reader
	text []byte // of the last value, used again
}

func newScanner(r io.Reader) *scanner { return &scanner{r: bufio.NewReaderSize(r, 32<<10)} }

// errSyntax is what a response gets that is no JSON.
func errSyntax(what string) error {
	return remote.Because(Unable, errors.New("its response is no JSON of an API server: "+what))
}

// What is skipped of a response, and not held, is bounded too: a server could go on for ever, and compressed it would cost it nothing.
const (
	maxBlank = 1 << 20  // bytes of white space in one place
	maxValue = 16 << 20 // bytes of one value, in next
)

// errLong is what a response gets that has more than so many bytes of something.
func errLong(what string, limit int) error {
	return remote.Because(Unable, fmt.Errorf("its response has more than %d KiB of %s", limit>>10, what))
}

// peek skips white space and returns the next byte without reading it.
func (s *scanner) peek() (byte, error) {
	for range maxBlank {
		c, err := s.r.ReadByte()
		if err != nil {
			return 0, err
		}
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c, s.r.UnreadByte()
		}
	}
	return 0, errLong("white space in one place", maxBlank)
}

// expect reads one byte, which must be this one.
func (s *scanner) expect(want byte) error {
	c, err := s.peek()
	if err != nil {
		return unexpected(err)
	}
	if c != want {
		return errSyntax(fmt.Sprintf("%s where %q is wanted", registry.Quote(string(rune(c))), want))
	}
	_, err = s.r.Discard(1)
	return err
}

// unexpected makes the end of the response an error, where it may not end.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// next reads one value. Of one that is longer than limit it returns the beginning, and that there was more. The text is good
// until the next call.
func (s *scanner) next(limit int) (text []byte, long bool, err error) {
	return s.value(limit, maxValue)
}

// short reads one value. One that is longer than limit is an error.
func (s *scanner) short(limit int) (text []byte, err error) {
	text, _, err = s.value(limit, limit)
	return text, err
}

func (s *scanner) value(limit, most int) (text []byte, long bool, err error) {
	if _, err := s.peek(); err != nil {
		return nil, false, err
	}
	s.text = s.text[:0]
	var at nesting
	for range most + 1 { // a number or a word ends before a byte that is not its own
		c, err := s.r.ReadByte()
		if err != nil {
			return nil, false, unexpected(err)
		}
		if at.isOutside() && len(s.text) > 0 && (c == ',' || c == '}' || c == ']' || c <= ' ') {
			return s.text, long, s.r.UnreadByte() // after a number or a word, which nothing else ends
		}
		if len(s.text) < limit {
			s.text = append(s.text, c)
		} else {
			long = true
		}
		if !at.closes(c) {
			continue
		}
		if at.depth < 0 {
			return nil, false, errSyntax("more is closed than was opened")
		}
		if at.isOutside() {
			return s.text, long, nil
		}
	}
	return nil, false, errLong("one value", most)
}

// A nesting says where in a value a scanner is.
type nesting struct {
	depth           int // of objects and arrays
	quoted, escaped bool
}

// isOutside reports whether no object, array or string is open.
func (n *nesting) isOutside() bool { return n.depth == 0 && !n.quoted }

// closes goes on by one byte, and reports whether that closes an object, an array or a string.
func (n *nesting) closes(c byte) bool {
	switch {
	case n.escaped:
		n.escaped = false
	case n.quoted && c == '\\':
		n.escaped = true
	case c == '"':
		n.quoted = !n.quoted
		return !n.quoted
	case n.quoted:
	case c == '{', c == '[':
		n.depth++
	case c == '}', c == ']':
		n.depth--
		return true
	}
	return false
}

// members reads an object and calls each for every key, before its value: each must read the value.
func (s *scanner) members(each func(key string) error) error {
	return s.elements('{', '}', func() error {
		key, err := s.string(maxKey)
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return each(key)
	})
}

// elements reads an array, or an object. each must read one element.
func (s *scanner) elements(open, end byte, each func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	for first := true; ; first = false {
		c, err := s.peek()
		if err != nil {
			return unexpected(err)
		}
		if c == end {
			_, err := s.r.Discard(1)
			return err
		}
		if !first {
			if err := s.expect(','); err != nil {
				return err
			}
		}
		if err := each(); err != nil {
			return unexpected(err)
		}
	}
}

// maxKey is how long the keys of a list may be, of which we know all.
const maxKey = 256

// string reads a string that has no escapes.
func (s *scanner) string(limit int) (string, error) {
	raw, err := s.short(limit)
	switch {
	case err != nil:
		return "", unexpected(err)
	case len(raw) < 2 || raw[0] != '"':
		return "", errSyntax(registry.Quote(string(raw)) + " where a short string is wanted")
	}
	return string(raw[1 : len(raw)-1]), nil
}
