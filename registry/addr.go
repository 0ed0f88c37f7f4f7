package registry

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// An Addr is where one endpoint answers: a literal address, or a host name to be resolved when it
// is used. It is comparable.
//
// A literal IPv4 address has one form only: the IPv6 spelling ::ffff:10.0.0.1 is read as 10.0.0.1,
// so that an endpoint spelled both ways is one endpoint. Host names are kept as they are spelled.
type Addr struct {
	IP   netip.AddrPort // with Host set, only its port counts and its address is the zero Addr
	Host string         // "" for a literal address
}

// String gives the address in the host:port form of the records. [ParseAddr] reads it back.
func (a Addr) String() string {
	if a.Host == "" {
		return a.IP.String()
	}
	return a.Host + ":" + strconv.Itoa(int(a.IP.Port()))
}

// Compare orders addresses: IPv4 before IPv6 before host names, then by the host, then by the port.
func (a Addr) Compare(b Addr) int {
	switch {
	case a.Host == "" && b.Host == "":
		return a.IP.Compare(b.IP)
	case a.Host == "":
		return -1
	case b.Host == "":
		return 1
	}
	return cmp.Or(strings.Compare(a.Host, b.Host), cmp.Compare(a.IP.Port(), b.IP.Port()))
}

// ParseAddr reads a host:port as records write it, IPv6 addresses in brackets. It takes only what
// can be dialled (D31): the host is a plausible host name or a literal address that [CheckUnicast] takes; the
// port is 1 to 65535 in plain decimal. Its errors do not repeat s.
func ParseAddr(s string) (Addr, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		if e, ok := errors.AsType[*net.AddrError](err); ok {
			err = errors.New(e.Err) // without the address, which may be of any length
		}
		return Addr{}, err
	}
	number, err := parsePort(port)
	if err != nil {
		return Addr{}, err
	}
	a, err := ParseHost(host)
	if err != nil {
		return Addr{}, err
	}
	return a.WithPort(number), nil
}

// WithPort returns the same host with a port.
func (a Addr) WithPort(number uint16) Addr {
	a.IP = netip.AddrPortFrom(a.IP.Addr(), number)
	return a
}

// The longest host name (RFC 1035, 3.1, without the length bytes and the root), the longest label,
// and the longest name of a network interface (IFNAMSIZ less its NUL, netdevice(7)).
const (
	maxHost  = 253
	maxLabel = 63
	maxZone  = 15
)

var (
	errUnspecified = errors.New("unspecified address")
	errMulticast   = errors.New("multicast address")
	errBroadcast   = errors.New("broadcast address")

	broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
)

// CheckUnicast reports why an address cannot be that of one endpoint; nil: it can. Who dials the unspecified
// address reaches its own node. A datagram to a multicast or broadcast address has as many receivers as there
// are, all of which may answer. The broadcast addresses of single networks depend on the node, and are not known here.
func CheckUnicast(ip netip.Addr) error {
	ip = ip.Unmap().WithZone("")
	switch {
	case ip.IsUnspecified():
		return errUnspecified
	case ip.IsMulticast():
		return errMulticast
	case ip == broadcast:
		return errBroadcast
	}
	return nil
}

// ParseHost reads the host of an endpoint: a literal address, with a zone if need be, or a
// plausible host name. An empty host is refused for the same reason as the unspecified address.
func ParseHost(host string) (Addr, error) {
	if host == "" {
		return Addr{}, errors.New("no host")
	}
	if len(host) > maxHost+len(".") {
		return Addr{}, errors.New("host is too long")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		if err := CheckUnicast(ip); err != nil {
			return Addr{}, err
		}
		if ip.Zone() != "" && !isZone(ip.Zone()) {
			return Addr{}, errors.New("zone is not an interface name")
		}
		return Addr{IP: netip.AddrPortFrom(ip, 0)}, nil
	}
	if !isHostName(host) {
		return Addr{}, errors.New("neither an address nor a host name")
	}
	return Addr{Host: host}, nil
}

// parsePort reads a port: plain decimal, since package net would also take "+80", "080" and "http".
func parsePort(s string) (uint16, error) {
	if s == "" {
		return 0, errors.New("no port")
	}
	if strings.Trim(s, "0123456789") != "" || s[0] == '0' && s != "0" {
		return 0, errors.New("port is not a plain decimal number")
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, errors.New("port is not between 1 and 65535")
	}
	return uint16(n), nil
}

// isHostName reports whether a resolver could know s: labels of letters, digits, hyphens and (for
// they are in use) underscores, with or without the root's dot at the end. The last label is not a
// number (RFC 1123, 2.1), for then it is an address: C libraries read 10.1 as 10.0.0.1.
func isHostName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if len(s) > maxHost {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if len(label) == 0 || len(label) > maxLabel || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return false
		}
		if !consistsOf(label, "-_") {
			return false
		}
		last = label
	}
	return strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(strings.ToLower(last), "0x")
}

// isZone reports whether s could name a network interface, or be the number of one.
func isZone(s string) bool { return len(s) <= maxZone && consistsOf(s, "-_.@") }

// consistsOf reports whether s has only ASCII letters, digits and the punctuation given.
func consistsOf(s, punctuation string) bool {
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune(punctuation, r):
		default:
			return false
		}
	}
	return true
}
