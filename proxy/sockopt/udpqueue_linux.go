package sockopt

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// QueueOf tells how much of a socket's receive queue is taken up by datagrams that were not read yet:
// bytes as the kernel counts them, with its own for each datagram, of those that there may be.
func QueueOf(fd int) (used, most uint32, ok bool) {
	var info [9]uint32 // of linux/sock_diag.h, SK_MEMINFO_RMEM_ALLOC and SK_MEMINFO_RCVBUF come first
	length := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&length)), 0)
	return info[0], info[1], errno == 0
}
