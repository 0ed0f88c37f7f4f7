package sockopt

import "golang.org/x/sys/unix"

// Duplicate returns another descriptor of an open socket. The caller owns it.
func Duplicate(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }

// Close closes what Duplicate returned.
func Close(fd int) { unix.Close(fd) }

// EndListening closes a descriptor of a listening TCP socket. Its port refuses clients from now on, and may be opened again, although
// other processes have the socket too.
func EndListening(fd int) {
	// For a listening socket shutdown(2) is what the last close is, but for the name that stays bound. Another socket with
	// SO_REUSEADDR, as package net makes them, may have the same name.
	_ = unix.Shutdown(fd, unix.SHUT_RDWR) // fails only if it does not listen
	unix.Close(fd)
}
