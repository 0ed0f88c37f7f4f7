package epoll

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
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
			of   func(*conn) *side
		}{
			{"client", func(c *conn) *side { return &c.client }},
			{"endpoint", func(c *conn) *side { return &c.backend }},
		} {
			want := fmt.Sprint(side.name, "_", want)
			c := &conn{why: engine.Undecided}
			new(loop).name(c, side.of(c), errno)
			if got := traffic.Reason(c.why).String(); got != want {
				t.Errorf("%v of the %s: %s, want %s", errno, side.name, got, want)
			}
		}
	}
}
