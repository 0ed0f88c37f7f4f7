package registry

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// A Check is how a service wants its endpoints to be checked while no client comes.
type Check struct {
	Wanted   CheckWish
	Path     string        // of TCP ports: a GET of it succeeds; "": a connection does
	Send     string        // of UDP ports: this datagram
	Expect   string        // is answered by one that begins so; a UDP port without Send is not checked
	Interval time.Duration // 0: the proxy's default
	Timeout  time.Duration // 0: the proxy's default
}

// A CheckWish says whether endpoints are to be checked.
type CheckWish uint8

// CheckUnsaid is the wish of a record that does not say: the proxy's default counts.
const (
	CheckUnsaid CheckWish = iota
	CheckOff
	CheckOn
	endOfCheckWishes // a new wish stands before it
)

// String gives the wish as records spell it.
func (w CheckWish) String() string {
	return [endOfCheckWishes]string{CheckUnsaid: "", CheckOff: "false", CheckOn: "true"}[w]
}

// Bounds of checks.
const (
	MinCheckInterval = 100 * time.Millisecond
	MaxCheckInterval = time.Hour
	maxCheckText     = 255 // bytes of a path, a datagram, or the begin of an answer
	minCheckTimeout  = 10 * time.Millisecond
)

func (c *Check) readWish(s string) error {
	switch s {
	case "true":
		c.Wanted = CheckOn
	case "false":
		c.Wanted = CheckOff
	default:
		return fmt.Errorf("%s is neither true nor false", Quote(s))
	}
	return nil
}

// readHTTP reads a path, with or without the method before it.
func (c *Check) readHTTP(s string) error {
	path := strings.TrimPrefix(s, "GET ")
	if !strings.HasPrefix(path, "/") || len(path) > maxCheckText || strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%s is no path such as /healthz, of at most %d bytes", Quote(s), maxCheckText)
	}
	c.Path = path
	return nil
}

// readUDP reads SEND or SEND=EXPECT, in which any byte may be spelled %XX.
func (c *Check) readUDP(s string) (err error) {
	send, expect, _ := strings.Cut(s, "=")
	if c.Send, err = url.PathUnescape(send); err == nil {
		c.Expect, err = url.PathUnescape(expect)
	}
	if err != nil || c.Send == "" || max(len(c.Send), len(c.Expect)) > maxCheckText {
		return fmt.Errorf("%s is no datagram such as ping or ping=pong, of at most %d bytes each, with %%XX for any byte", Quote(s), maxCheckText)
	}
	return nil
}

// showUDP is what readUDP reads.
func (c *Check) showUDP() string {
	escape := func(s string) string { return strings.ReplaceAll(url.PathEscape(s), "=", "%3D") }
	if c.Expect == "" {
		return escape(c.Send)
	}
	return escape(c.Send) + "=" + escape(c.Expect)
}

// isValid reports whether a record could say this.
func (c *Check) isValid() bool {
	return c.Wanted < endOfCheckWishes && c.Interval >= 0 && c.Interval <= MaxCheckInterval && c.Timeout >= 0 && c.Timeout <= MaxCheckInterval &&
		(c.Path == "" || new(Check).readHTTP(c.Path) == nil) && max(len(c.Send), len(c.Expect)) <= maxCheckText
}
