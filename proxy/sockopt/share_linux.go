package sockopt

import "golang.org/x/sys/unix"

// SharePort has a socket share its port with others of this user that do so too (socket(7), SO_REUSEPORT), as long as on is true.
func SharePort(fd int, on bool) error {
	var value int32
	if on {
		value = 1
	}
	return Set(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, value)
}
