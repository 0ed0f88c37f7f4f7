//go:build !unix

package sockopt

import "syscall"

func IsOurTrouble(error) bool { return false }

func IsTooLong(error) bool { return false }

// WithoutBroadcast does nothing: here the socket is as package net makes it.
func WithoutBroadcast(_, _ string, _ syscall.RawConn) error { return nil }
