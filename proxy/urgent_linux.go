package proxy

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// keepUrgent has urgent data (MSG_OOB of send(2)) read in its place in the stream, of a connection or of all that a
// listener accepts. Else the kernel would take the urgent byte out, and nobody would ever read it: telnet and FTP send bytes that mean
// something to the peer. That the byte was urgent is not passed on: few programs ask (RFC 6093).
func keepUrgent(fd int) { _ = setsockopt(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1) } // cannot fail on a socket

// prepareListen is keepUrgent for a listener of package net.
func prepareListen(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) { keepUrgent(int(fd)) })
}
