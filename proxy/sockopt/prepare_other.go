//go:build !linux

package sockopt

import "syscall"

// PrepareDial does nothing: what SO_REUSEADDR means for a connection differs from system to system.
func PrepareDial(_, _ string, _ syscall.RawConn) error { return nil }
