package sockopt

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func Set(fd, level, option int, value int32) error {
	_, _, errno := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
