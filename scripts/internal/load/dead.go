//go:build linux

package load

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/scripts/internal/try"
)

// Endpoints that fail. They last as long as this process.

// Refuse has an address refuse all connections: it is bound, and no socket listens.
func Refuse(addr netip.AddrPort) error {
	_, err := bound(addr)
	return err
}

// FallSilent has an address that never answers: the kernel drops the first packet of every connection
// while a listener's queue is full.
func FallSilent(addr netip.AddrPort) (err error) {
	defer try.Catch(&err)
	fd := try.Get(bound(addr))
	if err := unix.Listen(fd, 0); err != nil {
		return fmt.Errorf("listen on %v: %w", addr, err)
	}
	for range 10 { // one fills it; how exactly that is counted differs between kernels
		filler, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("socket: %w", err)
		}
		if err := unix.Connect(filler, address(addr)); err != nil && err != unix.EINPROGRESS {
			return fmt.Errorf("connect to %v: %w", addr, err)
		}
		ready := try.Get(await(filler, unix.POLLOUT, 100*time.Millisecond))
		if !ready {
			unix.Close(filler)
			return nil
		}
	}
	return fmt.Errorf("%v goes on answering", addr)
}

func bound(addr netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if err := unix.Bind(fd, address(addr)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("bind to %v: %w", addr, err)
	}
	return fd, nil
}
