//go:build linux

package load

import (
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The clients and the backends are plain loops over epoll, a thread each: cheaper and steadier than
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
	return unix.EpollCtl(p.fd, op, fd, &ev)
}

// wait gives the events of now, or of the next ones if there are none, or nothing after timeout.
func (p *poller) wait(timeout time.Duration) ([]unix.EpollEvent, error) {
	n, err := unix.EpollWait(p.fd, p.events[:], int(timeout.Milliseconds()))
	if err != nil && err != unix.EINTR {
		return nil, fmt.Errorf("epoll_wait: %w", err)
	}
	return p.events[:max(n, 0)], nil
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

// reset closes a TCP connection by a reset, so that no TIME_WAIT keeps its port.
func reset(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // the close may meet a socket that is gone already
	unix.Close(fd)
}

// again reports whether a call on a non-blocking socket only has to wait.
func again(err error) bool { return err == unix.EAGAIN || err == unix.EINTR }

// waitExactly is wait to the microsecond. (The timeout of epoll_wait is in milliseconds.)
func (p *poller) waitExactly(timeout time.Duration) ([]unix.EpollEvent, error) {
	t := unix.NsecToTimespec(max(0, timeout.Nanoseconds()))
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)),
		uintptr(unsafe.Pointer(&t)), 0, 0)
	switch errno {
	case 0:
		return p.events[:n], nil
	case unix.EINTR:
		return nil, nil
	}
	return nil, fmt.Errorf("epoll_pwait2 (Linux 5.11 and later): %w", errno)
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
