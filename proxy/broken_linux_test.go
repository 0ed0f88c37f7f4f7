package proxy

import (
	"fmt"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEnginesAgreeOnWhyAConnectionBroke: a connection log must not depend on the engine that wrote it.
func TestEnginesAgreeOnWhyAConnectionBroke(t *testing.T) {
	for errno, want := range map[unix.Errno]string{
		unix.ECONNRESET:   "reset",
		unix.EPIPE:        "reset",
		unix.ECONNREFUSED: "reset",
		unix.ECONNABORTED: "reset",
		unix.ETIMEDOUT:    "vanished",
		unix.EHOSTUNREACH: "vanished",
		unix.ENETUNREACH:  "vanished",
		unix.ENETDOWN:     "vanished",
		unix.EPERM:        "vanished",
		unix.EACCES:       "vanished",
		unix.EIO:          "vanished",
	} {
		for _, side := range []struct {
			name string
			ends sideEnds
			of   func(*conn) *half
		}{
			{"client", clientEnds, func(c *conn) *half { return &c.client }},
			{"endpoint", backendEnds, func(c *conn) *half { return &c.backend }},
		} {
			want := fmt.Sprint(side.name, "_", want)
			c := &conn{why: undecided}
			new(loop).name(c, side.of(c), errno)
			if got := Reason(c.why).String(); got != want {
				t.Errorf("%v of the %s: the epoll engine says %s, want %s", errno, side.name, got, want)
			}
			err := &net.OpError{Op: "read", Err: os.NewSyscallError("read", errno)}
			if got := side.ends.of(err).String(); got != want {
				t.Errorf("%v of the %s: the portable engine says %s, want %s", errno, side.name, got, want)
			}
		}
	}
}
