//go:build linux

package measure

import (
	"errors"
	"math/rand/v2"
	"net/netip"

	"golang.org/x/sys/unix"
)

// FreePorts finds n ports in a row on which nobody listens, and gives the first. They lie below the
// range that kernels take the ports of outgoing connections from, and below that of proxytest, whose tests may run beside.
func FreePorts(host netip.Addr, n int) (uint16, error) {
	for range 100 {
		base := uint16(6000 + rand.IntN(3900))
		free := true
		for i := range n {
			free = free && bindable(unix.SOCK_STREAM, host, base+uint16(i)) && bindable(unix.SOCK_DGRAM, host, base+uint16(i))
		}
		if free {
			return base, nil
		}
	}
	return 0, errors.New("no free ports between 6000 and 10000")
}

func bindable(kind int, host netip.Addr, port uint16) bool {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrInet4{Addr: host.As4(), Port: int(port)}) == nil
}
