package registry

import (
	"fmt"
	"net/url"
	"strconv"
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
	Fall     int           `json:",omitzero"` // checks in a row that fail before an endpoint does; 0: the proxy's default
	Rise     int           `json:",omitzero"` // that pass before it is used again; 0: the proxy's default

	TLS    CheckTLS    `json:",omitzero"` // how TCP ports are asked over TLS; zero: without
	Port   uint16      `json:",omitzero"` // that is asked; 0: the endpoint's own
	Method string      `json:",omitzero"` // of the request for Path; "": GET
	Host   string      `json:",omitzero"` // in its header; "": the address
	Status StatusRange `json:",omitzero"` // of its answer; zero: 200 to 399
}

// A CheckTLS says whether a check speaks TLS.
type CheckTLS uint8

// Values of CheckTLS.
const (
	CheckPlain      CheckTLS = iota
	CheckVerified            // the certificate has to be that of the endpoint, by an authority that the proxy trusts
	CheckUnverified          // any certificate passes
	endOfCheckTLS
)

// String gives it as records spell it.
func (v CheckTLS) String() string {
	return [endOfCheckTLS]string{CheckPlain: "", CheckVerified: "verify", CheckUnverified: "insecure"}[v]
}

// A StatusRange is the statuses of HTTP from Low to High.
type StatusRange struct{ Low, High uint16 }

// String gives the range as records spell it; "" for the zero range.
func (r StatusRange) String() string {
	switch {
	case r == StatusRange{}:
		return ""
	case r.Low == r.High:
		return strconv.Itoa(int(r.Low))
	}
	return fmt.Sprintf("%d-%d", r.Low, r.High)
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
	maxInARow        = 100 // checks that count together
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

func (c *Check) readTLS(s string) error {
	for v := CheckVerified; v < endOfCheckTLS; v++ {
		if v.String() == s {
			c.TLS = v
			return nil
		}
	}
	return fmt.Errorf("%s is neither verify nor insecure", Quote(s))
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

// readPort reads the port that is asked.
func (c *Check) readPort(s string) error {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s != strconv.FormatUint(n, 10) {
		return fmt.Errorf("%s is no port from 1 to 65535", Quote(s))
	}
	c.Port = uint16(n)
	return nil
}

func (c *Check) showPort() string {
	if c.Port == 0 {
		return ""
	}
	return strconv.Itoa(int(c.Port))
}

func (c *Check) readMethod(s string) error {
	if s != "GET" && s != "HEAD" && s != "OPTIONS" {
		return fmt.Errorf("%s is none of GET, HEAD and OPTIONS", Quote(s))
	}
	c.Method = s
	return nil
}

func (c *Check) readHost(s string) error {
	if s == "" || len(s) > maxCheckText || !consistsOf(s, "-._:[]") {
		return fmt.Errorf("%s is no host such as web.example, with or without a port, of at most %d bytes", Quote(s), maxCheckText)
	}
	c.Host = s
	return nil
}

// readStatus reads a status, or a range of them.
func (c *Check) readStatus(s string) error {
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	from, err := strconv.ParseUint(low, 10, 16)
	to, err2 := strconv.ParseUint(high, 10, 16)
	r := StatusRange{uint16(from), uint16(to)}
	if err != nil || err2 != nil || from < 100 || to > 599 || from > to || isRange && from == to || r.String() != s {
		return fmt.Errorf("%s is no status such as 204, and no range such as 200-299", Quote(s))
	}
	c.Status = r
	return nil
}

// problem reports a term that says something about a request that is not made.
func (c *Check) problem() error {
	switch {
	case c.Path == "" && (c.Method != "" || c.Status != StatusRange{}):
		return fmt.Errorf("%[1]scheck-method and %[1]scheck-status take %[1]scheck-http", AnnotationPrefix)
	case c.Path == "" && c.TLS == CheckPlain && c.Host != "":
		return fmt.Errorf("%[1]scheck-host takes %[1]scheck-http or %[1]scheck-tls", AnnotationPrefix)
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
	return c.Wanted < endOfCheckWishes && c.TLS < endOfCheckTLS && c.Interval >= 0 && c.Interval <= MaxCheckInterval && c.Timeout >= 0 && c.Timeout <= MaxCheckInterval &&
		(c.Path == "" || new(Check).readHTTP(c.Path) == nil) && c.problem() == nil && max(len(c.Send), len(c.Expect)) <= maxCheckText
}
