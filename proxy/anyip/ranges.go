package anyip

import (
	"fmt"
	"net"
	"net/netip"
)

// never are ranges of which no service can have an address.
var never = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::/128"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// An Interface is an address of this machine, with the network that it is in.
type Interface struct {
	Name string
	Addr netip.Prefix
}

// Interfaces lists the addresses of this machine.
func Interfaces() (all []Interface, _ error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				if ip, ok := netip.AddrFromSlice(n.IP); ok {
					ones, _ := n.Mask.Size()
					all = append(all, Interface{i.Name, netip.PrefixFrom(ip.Unmap(), ones)})
				}
			}
		}
	}
	return all, nil
}

// Open returns the routes of ranges, none of which exists yet. An error says why services cannot have the ranges: see [Check]. instance is the
// same for a process and its successors, and another for other processes of the machine; empty if it has no predecessor. One without ranges may
// have a predecessor with some, whose routes it deletes; if there are neither ranges nor an instance, there are no routes: nil.
func Open(ranges []netip.Prefix, instance string) (*Routes, error) {
	if len(ranges) == 0 {
		if instance == "" {
			return nil, nil
		}
		return open(nil, instance)
	}
	interfaces, err := Interfaces()
	if err != nil {
		return nil, err
	}
	if err := Check(ranges, interfaces); err != nil {
		return nil, err
	}
	return open(ranges, instance)
}

// Check returns why services cannot have ranges of addresses: one overlaps another, or a network of this machine, whose hosts would be reached no
// more, or holds addresses that no service can have.
func Check(ranges []netip.Prefix, interfaces []Interface) error {
	for i, r := range ranges {
		if !r.IsValid() || r.Addr().Is4In6() {
			return fmt.Errorf("%v is no range of addresses; an IPv4 range is written as 10.96.0.0/12", r)
		}
		for _, n := range never {
			if r.Overlaps(n) {
				return fmt.Errorf("%v holds addresses of %v, which no service can have", r, n)
			}
		}
		for _, other := range ranges[:i] {
			if r.Overlaps(other) {
				return fmt.Errorf("%v and %v overlap", other, r)
			}
		}
		for _, of := range interfaces {
			if r.Overlaps(of.Addr) {
				return fmt.Errorf("%v overlaps %v of %s: choose a range that no interface of this node is in", r, of.Addr, of.Name)
			}
		}
	}
	return nil
}
