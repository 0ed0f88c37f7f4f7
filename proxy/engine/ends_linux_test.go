package engine

import (
	"fmt"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWhyAConnectionBrokeIsReadFromTheError: a connection log must not depend on the engine that wrote it.
func TestWhyAConnectionBrokeIsReadFromTheError(t *testing.T) {
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
			ends SideEnds
		}{
			{"client", ClientEnds},
			{"endpoint", BackendEnds},
		} {
			want := fmt.Sprint(side.name, "_", want)
			err := &net.OpError{Op: "read", Err: os.NewSyscallError("read", errno)}
			if got := side.ends.Of(err).String(); got != want {
				t.Errorf("%v of the %s: %s, want %s", errno, side.name, got, want)
			}
		}
	}
}
