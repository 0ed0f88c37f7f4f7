//go:build !linux

package admit

import (
	"net"
	"net/netip"
	"slices"
)

// IsRoutedHere reports whether an interface of this machine has the address.
func IsRoutedHere(addr netip.Addr) bool {
	addrs, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap().WithZone("") == addr
	})
}
