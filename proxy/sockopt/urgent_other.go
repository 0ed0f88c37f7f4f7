//go:build !linux

package sockopt

import "syscall"

// PrepareListen does nothing: an urgent byte is Lost on these systems.
func PrepareListen(_, _ string, _ syscall.RawConn) error { return nil }
