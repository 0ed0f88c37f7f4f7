//go:build !unix

package sockopt

import "syscall"

// IsOurTrouble knows no such error: here they have no common form.
func IsOurTrouble(error) bool { return false }

// IsTooLong knows no such error, either.
func IsTooLong(error) bool { return false }

// WithoutBroadcast does nothing: here the socket is as package net makes it.
func WithoutBroadcast(_, _ string, _ syscall.RawConn) error { return nil }
