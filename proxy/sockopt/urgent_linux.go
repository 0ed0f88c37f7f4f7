package sockopt

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// KeepUrgent has urgent data (MSG_OOB of send(2)) read in its place in the stream, of a connection or of all that a
// listener accepts. Else the kernel would take the urgent byte out, and it would never be read: telnet and FTP send bytes that mean
// something to the peer. That the byte was urgent is not passed on: few programs ask (RFC 6093).
func KeepUrgent(fd int) { _ = Set(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1) } // cannot fail on a socket

// PrepareListen is KeepUrgent for a listener of package net.
func PrepareListen(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) { KeepUrgent(int(fd)) })
}
