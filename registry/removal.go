package registry

import (
	"errors"
	"strings"
	"time"
)

// A Removal says what becomes of TCP connections whose endpoint leaves the service, or whose service leaves the port.
type Removal struct {
	Rule  RemovalRule
	After time.Duration `json:",omitzero"` // with RemovalClose: so long after the removal
}

// A RemovalRule is what becomes of them.
type RemovalRule uint8

// The rules. RemovalUnsaid is that of a record that does not say.
const (
	RemovalUnsaid RemovalRule = iota
	RemovalDrain              // they go on for as long as they like
	RemovalClose              // they are closed
)

// ParseRemoval reads a rule: drain, close, or close-after=TIME.
func ParseRemoval(s string) (Removal, error) {
	after, timed := strings.CutPrefix(s, "close-after=")
	switch {
	case s == "drain":
		return Removal{Rule: RemovalDrain}, nil
	case s == "close":
		return Removal{Rule: RemovalClose}, nil
	case !timed:
		return Removal{}, errors.New("want drain, close or close-after=TIME")
	}
	d, err := time.ParseDuration(after)
	if err != nil || d < 0 {
		return Removal{}, errors.New("want a time after close-after=, such as 30s")
	}
	return Removal{Rule: RemovalClose, After: d}, nil
}

// String gives the rule as records and flags spell it; "" if it is unsaid.
func (r Removal) String() string {
	switch {
	case r.Rule == RemovalUnsaid:
		return ""
	case r.Rule == RemovalDrain:
		return "drain"
	case r.After == 0:
		return "close"
	}
	return "close-after=" + r.After.String()
}
