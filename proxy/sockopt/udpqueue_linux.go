package sockopt

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Lost returns how many datagrams a socket's receive queue had no room for so far. The number wraps around.
func Lost(fd int) (n uint32, ok bool) {
	info, ok := memInfo(fd)
	return info[unix.SK_MEMINFO_DROPS], ok
}

// QueueOf tells how much of a socket's receive queue is taken up by datagrams that were not read yet:
// bytes as the kernel counts them, with its own for each datagram, of those that there may be.
func QueueOf(fd int) (used, most uint32, ok bool) {
	info, ok := memInfo(fd)
	return info[unix.SK_MEMINFO_RMEM_ALLOC], info[unix.SK_MEMINFO_RCVBUF], ok
}

// memInfo is SO_MEMINFO of a socket (linux/sock_diag.h).
func memInfo(fd int) (info [unix.SK_MEMINFO_VARS]uint32, ok bool) {
	length := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&length)), 0)
	return info, errno == 0
}

// MaxUnread bounds what one call of Unread takes.
const MaxUnread = 1024

// Unread takes the datagrams that a socket has received and nobody has read, [MaxUnread] at most, and returns how many they are. It is for
// a socket that is about to be closed, in non-blocking mode.
func Unread(fd int) (n int) {
	var start [1]byte
	for range MaxUnread {
		_, err := IgnoringEINTR(unix.Read, fd, start[:])
		if err == unix.EAGAIN {
			break
		}
		if err == nil { // else an answer to what was sent
			n++
		}
	}
	return n
}
