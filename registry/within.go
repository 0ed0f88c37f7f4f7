package registry

import (
	"errors"
	"net/netip"
	"slices"
)

// Within reports whether an address lies in one of the prefixes, which hold IPv4 addresses as such.
func Within(prefixes []netip.Prefix, addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// ErrNotAllowed is what an endpoint gets whose address lies outside [Config].AllowedEndpoints.
var ErrNotAllowed = errors.New("its address is not allowed (-allowed_endpoints)")
