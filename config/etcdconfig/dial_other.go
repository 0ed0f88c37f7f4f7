//go:build !linux

package etcdconfig

import "syscall"

// prepareDial does nothing: what SO_REUSEADDR means for a connection differs from system to system.
func prepareDial(_, _ string, _ syscall.RawConn) error { return nil }
