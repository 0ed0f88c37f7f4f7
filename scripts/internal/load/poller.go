//go:build linux

package load

import (
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Light clients and their backends are plain loops over epoll, a thread each: cheaper and steadier than
// goroutines, so that what is measured is the proxy between them.

// A poller is an epoll instance. It belongs to one goroutine.
type poller struct {
	fd     int
	events [256]unix.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create: %w", err)
	}
	return &poller{fd: fd}, nil
}

func (p *poller) close() { unix.Close(p.fd) }

// set watches a descriptor for events, level-triggered; op is EPOLL_CTL_ADD or EPOLL_CTL_MOD. Index
// and kind come back with each event.
func (p *poller) set(op, fd int, events uint32, index, kind int) error {
	ev := unix.EpollEvent{Events: events, Fd: int32(index), Pad: int32(kind)}
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(p.fd), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(&ev)), 0, 0)
	_, err := result(0, errno)
	return err
}

// wait gives the events of now, or the next ones if there are none, or nothing after timeout. It may also return nothing before.
// A loop that has waited for a while parks: an idle one keeps none of the Go runtime's processors.
func (p *poller) wait(timeout time.Duration) ([]unix.EpollEvent, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), uintptr(min(shortly, timeout).Milliseconds()), 0, 0)
	if errno == 0 && n > 0 || timeout <= shortly || errno == unix.EINTR { // the runtime interrupts it by signals
		return p.happened(int(n), errno)
	}
	k, err := unix.EpollWait(p.fd, p.events[:], int((timeout - shortly).Milliseconds()))
	errno, _ = err.(unix.Errno)
	return p.happened(k, errno)
}

func (p *poller) happened(n int, errno unix.Errno) ([]unix.EpollEvent, error) {
	switch errno {
	case 0:
		return p.events[:n], nil
	case unix.EINTR:
		return nil, nil
	}
	return nil, fmt.Errorf("epoll_wait: %w", errno)
}

// address makes of an address what system calls want. Only IPv4 is used here.
func address(a netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

// dialTimeout bounds how long a client waits for a connection.
const dialTimeout = 5 * time.Second

// dial connects a non-blocking socket (unix.SOCK_STREAM or SOCK_DGRAM), and waits until it is connected.
func dial(kind int, to netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if err = unix.Connect(fd, address(to)); err == unix.EINPROGRESS {
		err = connected(fd)
	}
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("connect to %v: %w", to, err)
	}
	return fd, nil
}

// connected waits until a connection is there, or is refused.
func connected(fd int) error {
	ready, err := await(fd, unix.POLLOUT, dialTimeout)
	if err != nil {
		return err
	}
	if !ready {
		return unix.ETIMEDOUT
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}

// await waits until something can be done with one descriptor, and reports whether it can.
func await(fd int, what int16, timeout time.Duration) (bool, error) {
	for deadline := now() + timeout; ; {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: what}}, int(max(0, deadline-now()).Milliseconds()))
		if err != unix.EINTR { // the scheduler of Go sends signals
			return ready > 0, err
		}
	}
}

// again reports whether a call on a non-blocking socket only has to wait.
func again(err error) bool { return err == unix.EAGAIN || err == unix.EINTR }

// waitExactly is wait to the microsecond. (The timeout of epoll_wait is in milliseconds.)
func (p *poller) waitExactly(timeout time.Duration) ([]unix.EpollEvent, error) {
	t := unix.NsecToTimespec(max(0, timeout.Nanoseconds()))
	if timeout > shortly {
		n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), uintptr(unsafe.Pointer(&t)), 0, 0)
		return p.happened(int(n), errno)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), uintptr(unsafe.Pointer(&t)), 0, 0)
	return p.happened(int(n), errno) // Linux 5.11 and later
}

// Answers reports whether the peer answers one question.
func Answers(kind int, addr netip.AddrPort) bool {
	fd, err := dial(kind, addr)
	if err != nil {
		return false
	}
	defer reset(fd)
	var buf [messageSize]byte
	if _, err := unix.Write(fd, buf[:]); err != nil {
		return false
	}
	if ready, err := await(fd, unix.POLLIN, 200*time.Millisecond); err != nil || !ready {
		return false
	}
	n, err := unix.Read(fd, buf[:])
	return err == nil && n > 0
}
