package registry

import (
	"errors"
	"net/netip"
	"slices"
)

// MaxSourceRanges bounds the ranges of one service, since each new connection is compared with them.
// Cloud load balancers, which the field was made for, stop at some hundreds.
const MaxSourceRanges = 1000

// SourceRangesField is where Kubernetes keeps the ranges.
const SourceRangesField = "spec.loadBalancerSourceRanges"

// sourceRangesAnnotation is where Kubernetes 1.2 kept the ranges, before they were a field.
const sourceRangesAnnotation = "service.beta.kubernetes.io/load-balancer-source-ranges"

// parseRange reads a range of addresses, as in 10.0.0.0/8, and gives it in its one form. Like
// Kubernetes it takes a range that is written by any address inside it.
func parseRange(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return netip.Prefix{}, errors.New("not a range of addresses such as 10.0.0.0/8")
	case p.Addr().Is4In6() && p.Bits() < 96:
		return netip.Prefix{}, errors.New("neither a range of IPv4 addresses nor one of IPv6 addresses")
	case p.Addr().Is4In6():
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// Within reports whether an address lies in one of the prefixes, which hold IPv4 addresses as such.
func Within(prefixes []netip.Prefix, addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// ErrNotAllowed is what an endpoint gets whose address lies outside [Config].AllowedEndpoints.
var ErrNotAllowed = errors.New("its address is not allowed (-allowed_endpoints)")
