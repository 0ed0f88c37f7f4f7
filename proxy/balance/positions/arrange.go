package positions

import (
	"net/netip"
	"slices"
)

// Arrange returns addresses as RFC 8305 orders them: those of the family that the list begins with, and those of the other one by turns. order puts
// the addresses of one family in the order in which the client tries them; it may edit what it is given.
func Arrange(addrs []netip.AddrPort, order func(family []netip.AddrPort) []netip.AddrPort) []netip.AddrPort {
	preferred, other := families(slices.Clone(addrs))
	preferred, other = order(preferred), order(other)
	arranged := make([]netip.AddrPort, 0, len(addrs))
	for i := range max(len(preferred), len(other)) {
		if i < len(preferred) {
			arranged = append(arranged, preferred[i])
		}
		if i < len(other) {
			arranged = append(arranged, other[i])
		}
	}
	return arranged
}

// families divides addresses where their family changes.
func families(addrs []netip.AddrPort) (preferred, other []netip.AddrPort) {
	first := addrs[0].Addr().Is4()
	n := slices.IndexFunc(addrs, func(a netip.AddrPort) bool { return a.Addr().Is4() != first })
	if n < 0 {
		n = len(addrs)
	}
	return addrs[:n], addrs[n:]
}

// Rotated returns the list from its element number turn on, which counts on around the list, and then the elements before that.
func Rotated[T any](list []T, turn uint32) []T {
	if len(list) == 0 {
		return nil
	}
	n := int(turn % uint32(len(list)))
	return slices.Concat(list[n:], list[:n])
}
