package etcdconfig

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// prepareDial lets the listener of a service open on the local port that a connection to etcd is given. The kernel takes
// that port from ip_local_port_range, in which ports of services may lie.
func prepareDial(_, _ string, raw syscall.RawConn) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }); cerr != nil {
		return cerr
	}
	return err
}
