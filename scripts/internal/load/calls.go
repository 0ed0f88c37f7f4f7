//go:build linux

package load

import (
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of loops. The Go runtime is not told of them: its monitor would look every 20 us whether a call still lasts, which
// costs as much as the call, and takes a processor from the proxy that is measured. All sockets are in non-blocking mode, so only a
// wait lasts; see [poller.wait].

func result(n uintptr, errno unix.Errno) (int, error) {
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

func read(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	return result(n, errno)
}

func write(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	return result(n, errno)
}

func closeFD(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

func finishSending(fd int) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
	_, err := result(0, errno)
	return err
}

// reset closes a TCP connection by a reset, so that no TIME_WAIT keeps its port.
func reset(fd int) {
	abort := unix.Linger{Onoff: 1}
	_, _, _ = unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER, uintptr(unsafe.Pointer(&abort)), unsafe.Sizeof(abort), 0)
	closeFD(fd)
}

// connectFrom makes a socket that connects to one address from a port of another that is free for this target.
func connectFrom(from, to *unix.RawSockaddrInet4) (int, error) {
	fd, _, errno := unix.RawSyscall(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errno != 0 {
		return -1, errno
	}
	// Without this option bind would look for a port that is free for every target.
	on := int32(1)
	_, _, errno = unix.RawSyscall6(unix.SYS_SETSOCKOPT, fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, uintptr(unsafe.Pointer(&on)), unsafe.Sizeof(on), 0)
	if errno == 0 {
		_, _, errno = unix.RawSyscall(unix.SYS_BIND, fd, uintptr(unsafe.Pointer(from)), unix.SizeofSockaddrInet4)
	}
	if errno == 0 {
		_, _, errno = unix.RawSyscall(unix.SYS_CONNECT, fd, uintptr(unsafe.Pointer(to)), unix.SizeofSockaddrInet4)
	}
	if errno != 0 && errno != unix.EINPROGRESS {
		closeFD(int(fd))
		return -1, errno
	}
	return int(fd), nil
}

// rawSockaddr writes an address as the kernel reads it.
func rawSockaddr(a *unix.SockaddrInet4) unix.RawSockaddrInet4 {
	port := uint16(a.Port)
	return unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: a.Addr, Port: port<<8 | port>>8}
}

// shortly is how long a loop waits without telling the Go runtime. While it does, its goroutine keeps one of the runtime's
// processors.
const shortly = 5 * time.Millisecond

// keepProcessors lets the goroutines beside so many loops run as well.
func keepProcessors(loops int) { runtime.GOMAXPROCS(runtime.NumCPU() + loops) }
