package sockopt

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// PrepareDial lets a listener open on the local port that this dial will be given. Without it a
// connection to an endpoint, and what is left of it for a minute (TIME_WAIT), keeps a service from
// the port if that lies in the range that local ports are taken from (ip_local_port_range). With
// it only other programs' connections do: net.ipv4.ip_local_reserved_ports is the cure for those. It also
// has the connection keep urgent data.
func PrepareDial(_, _ string, raw syscall.RawConn) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		KeepUrgent(int(fd))
	}); cerr != nil {
		return cerr
	}
	return err
}
