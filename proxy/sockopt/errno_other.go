//go:build !unix

package sockopt

import "syscall"

// IsOurTrouble knows no such error: here they have no common form.
func IsOurTrouble(error) bool { return false }

// IsTooLong knows no such error, either.
func IsTooLong(error) bool { return false }

// WithoutBroadcast is nil, which a net.Dialer takes for no preparation: here the socket is as package net makes it.
var WithoutBroadcast func(network, address string, raw syscall.RawConn) error
