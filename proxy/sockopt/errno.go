package sockopt

import (
	"errors"
	"syscall"
)

// IsReset reports whether a read or a write of a connection failed because the peer, or an operator of this
// machine, broke the connection off. Every other failure means that the peer can no longer be reached: it has
// vanished. Both engines choose the reason why a connection ended by this table:
//
//	ECONNRESET, EPIPE, ECONNREFUSED      reset     the peer answered that it takes nothing more
//	ECONNABORTED                         reset     the connection was ended on this machine (ss -K)
//	ETIMEDOUT                            vanished  the peer acknowledged nothing for too long
//	EHOSTUNREACH, ENETUNREACH, ENETDOWN  vanished  there is no way to the peer any more
//	EPERM, EACCES                        vanished  a firewall of this machine drops what is sent to the peer
//	any other                            vanished
func IsReset(err error) bool {
	for _, errno := range [...]syscall.Errno{syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNREFUSED, syscall.ECONNABORTED} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// IsShortage reports whether it was our own descriptors, or the system's, that there were none left of.
func IsShortage(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// LacksResources reports whether it was this machine that could not begin a connection: it has no descriptor left (see IsShortage), no memory, or
// no room for what epoll watches (fs.epoll.max_user_watches). No endpoint is to blame, and none would fare better.
func LacksResources(err error) bool {
	for _, errno := range [...]syscall.Errno{syscall.ENOMEM, syscall.ENOBUFS, syscall.ENOSPC} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return IsShortage(err)
}
