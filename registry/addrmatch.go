package registry

import (
	"errors"
	"net"
	"net/netip"
	"strings"
)

// An AddrMatch names endpoints as an operator does: by host and port, or all of a host. The zero value matches every address.
type AddrMatch struct {
	host string     // of a name
	ip   netip.Addr // of a literal address
	port uint16     // 0: any
}

// ParseAddrMatch reads 10.1.2.3:8080, 10.1.2.3, db.example:5432, db.example, [2001:db8::1]:80 or 2001:db8::1.
func ParseAddrMatch(text string) (AddrMatch, error) {
	if addr, err := ParseAddr(text); err == nil {
		return AddrMatch{addr.Host, addr.IP.Addr(), addr.IP.Port()}, nil
	}
	host := strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	addr, err := ParseAddr(net.JoinHostPort(host, "1"))
	if err != nil {
		return AddrMatch{}, errors.New("must be HOST:PORT or HOST")
	}
	return AddrMatch{host: addr.Host, ip: addr.IP.Addr()}, nil
}

// IsAny reports whether m matches every address.
func (m AddrMatch) IsAny() bool { return m == AddrMatch{} }

// Matches reports whether m names an address.
func (m AddrMatch) Matches(a Addr) bool {
	return m.IsAny() || m.host == a.Host && m.ip == a.IP.Addr() && (m.port == 0 || m.port == a.IP.Port())
}
