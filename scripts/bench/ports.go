//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ports are where somebody is reached for each purpose. Everybody has addresses of his own, so the
// numbers are the same for all peers; only kube-proxy has others, so that it could also listen on
// every address.
type ports struct {
	echo  uint16 // TCP: sends back what comes
	bulk  uint16 // TCP: sends without end
	udp   uint16 // UDP: sends back what comes
	stamp uint16 // UDP: says which backend it is, and the time
}

func portsFrom(base uint16) ports { return ports{base, base + 1, base + 2, base + 3} }

// freePorts finds n ports in a row on which nobody listens, and gives the first. They lie below the
// range that kernels take the ports of outgoing connections from, and below that of proxytest, whose tests may run beside.
func freePorts(host netip.Addr, n int) (uint16, error) {
	for range 100 {
		base := uint16(6000 + rand.IntN(3900))
		free := true
		for i := range n {
			free = free && bindable(unix.SOCK_STREAM, netip.AddrPortFrom(host, base+uint16(i))) &&
				bindable(unix.SOCK_DGRAM, netip.AddrPortFrom(host, base+uint16(i)))
		}
		if free {
			return base, nil
		}
	}
	return 0, errors.New("no free ports between 6000 and 10000")
}

func bindable(kind int, addr netip.AddrPort) bool {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Bind(fd, address(addr)) == nil
}

// proxyHost is the address that the i-th proxy listens on.
func proxyHost(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + i)}) }

// parsePorts is how the backends are told their ports.
func parsePorts(base string) (ports, error) {
	var n uint16
	if _, err := fmt.Sscan(base, &n); err != nil {
		return ports{}, fmt.Errorf("port %q: %w", base, err)
	}
	return portsFrom(n), nil
}
