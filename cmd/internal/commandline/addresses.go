package commandline

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// An Address is a flag that holds an IP address, by v0.4's rules: blanks around it are trimmed, and nothing but a whole numeric address
// is accepted.
type Address netip.Addr

func (a *Address) Set(s string) error {
	ip, err := netip.ParseAddr(strings.TrimSpace(s))
	if err != nil || ip.Zone() != "" {
		return fmt.Errorf("invalid IP address: '%s'", s)
	}
	*a = Address(ip.Unmap())
	return nil
}

func (a *Address) String() string {
	if !netip.Addr(*a).IsValid() {
		return "" // not given
	}
	return netip.Addr(*a).String()
}

func (a *Address) Type() string { return "ip" }

// A Place is a flag that holds an IP address with a port to listen on, or nothing. Port 0 is any port that is free.
type Place netip.AddrPort

func (p *Place) Set(s string) error {
	s = strings.TrimSpace(s)
	if s == "" {
		*p = Place{}
		return nil
	}
	addr, err := netip.ParseAddrPort(s)
	if err != nil || addr.Addr().Zone() != "" {
		return errors.New("want an IP address with a port, such as 127.0.0.1:10256 or [::1]:10256, or nothing")
	}
	*p = Place(netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()))
	return nil
}

func (p *Place) String() string {
	if addr := netip.AddrPort(*p); addr.IsValid() {
		return addr.String()
	}
	return ""
}

func (p *Place) Type() string { return "address" }

// Networks is a flag that holds networks. An address alone is the network of itself. Each use of the flag adds to the list.
type Networks []netip.Prefix

func (n *Networks) Set(s string) error {
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		prefix, err := netip.ParsePrefix(item)
		if addr, ip := netip.ParseAddr(item); ip == nil && addr.Zone() == "" {
			prefix, err = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), nil
		}
		if err != nil || prefix.Addr().Is4In6() {
			return errors.New("want networks, such as 10.0.0.0/8,fd00::/8")
		}
		if prefix != prefix.Masked() { // a slip of the keyboard, most often in the length
			return fmt.Errorf("%v has bits beyond its length; the network is %v", prefix, prefix.Masked())
		}
		*n = append(*n, prefix)
	}
	return nil
}

func (n *Networks) String() string {
	var items []string
	for _, prefix := range *n {
		items = append(items, prefix.String())
	}
	return strings.Join(items, ",")
}

func (n *Networks) Type() string { return "networks" }

// IsList says that the flag may have several values.
func (n *Networks) IsList() {}
