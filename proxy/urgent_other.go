//go:build !linux

package proxy

import "syscall"

// prepareListen does nothing: an urgent byte is lost on these systems.
func prepareListen(_, _ string, _ syscall.RawConn) error { return nil }
