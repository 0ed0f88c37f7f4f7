package sockopt

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Set sets an option of a socket whose value is a number, without telling the scheduler: see setsockopt(2).
func Set(fd, level, option int, value int32) error {
	_, _, errno := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
