//go:build unix

package sockopt

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// IsOurTrouble reports whether it is this machine that cannot send just now: its queues or its local
// ports are used up, or its firewall dropped the datagram (EPERM; so it does when the table of
// connections that it tracks is full). No endpoint is to blame for that.
func IsOurTrouble(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EPERM)
}

// IsTooLong reports whether a datagram could not be sent because of its length.
func IsTooLong(err error) bool { return errors.Is(err, unix.EMSGSIZE) }

// WithoutBroadcast has the kernel refuse broadcast addresses (socket(7), SO_BROADCAST).
func WithoutBroadcast(_, _ string, raw syscall.RawConn) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 0) }); cerr != nil {
		return cerr
	}
	return err
}

// IgnoringEINTR makes a system call that reads into p, or writes it, and repeats it for as long as a signal interrupts it.
func IgnoringEINTR(call func(fd int, p []byte) (int, error), fd int, p []byte) (n int, err error) {
	for {
		if n, err = call(fd, p); err != unix.EINTR {
			return n, err
		}
	}
}
