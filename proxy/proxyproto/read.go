package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
)

// A Header says who the client of a proxy is, and where it connected to. Both addresses are zero if the header does not say: the
// connection is the proxy's own (LOCAL), or of a kind without IP addresses. An IPv4 address is never in its IPv6 spelling.
type Header struct{ Source, Destination netip.AddrPort }

// How long headers may be. Version 2 has a field of 16 bits for its length, but the protocol has senders keep to the smallest segment
// that TCP carries. MaxHeader is that: who reads so many bytes has the whole header, or what is no header.
const (
	maxV1     = 107
	MaxHeader = 536
)

// The errors of Parse. Each means that what was read is no header.
var (
	ErrNoHeader = errors.New("no PROXY header")
	ErrTooLong  = errors.New("the PROXY header is too long")
	ErrBad      = errors.New("malformed PROXY header")
)

// Parse reads the header at the beginning of b, which may go on behind it, and returns how long it is. 0 without an error means that b
// is the beginning of a header, and more has to come: never with [MaxHeader] bytes. Extensions of version 2 (TLVs) are skipped.
func Parse(b []byte) (h Header, length int, err error) {
	const word = "PROXY "
	switch {
	case hasPrefix(b, signature):
		return parseV2(b)
	case hasPrefix(b, word):
		return parseV1(b)
	}
	return Header{}, 0, ErrNoHeader
}

// hasPrefix reports whether b begins with a prefix, or with as much of it as b is long.
func hasPrefix(b []byte, prefix string) bool {
	n := min(len(b), len(prefix))
	return string(b[:n]) == prefix[:n]
}

func parseV1(b []byte) (h Header, length int, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxV1)], '\n')
	switch {
	case end < 0 && len(b) >= maxV1:
		return h, 0, ErrTooLong
	case end < 0:
		return h, 0, nil
	case b[end-1] != '\r':
		return h, 0, ErrBad
	}
	length = end + 1
	kind, rest, _ := strings.Cut(string(b[len("PROXY "):end-1]), " ")
	switch kind {
	case "UNKNOWN": // whatever follows
		return h, length, nil
	case "TCP4", "TCP6":
		if h, ok := parseAddresses(rest, kind == "TCP4"); ok {
			return h, length, nil
		}
	}
	return h, 0, ErrBad
}

// parseAddresses reads two addresses of a family and two ports, with one space between each two.
func parseAddresses(s string, want4 bool) (h Header, ok bool) {
	var fields [4]string
	for i := range 3 {
		if fields[i], s, ok = strings.Cut(s, " "); !ok {
			return h, false
		}
	}
	fields[3] = s
	var addrs [2]netip.Addr
	var ports [2]uint16
	for i := range 2 {
		addr, err := netip.ParseAddr(fields[i])
		if err != nil || addr.Is4() != want4 || addr.Zone() != "" {
			return h, false
		}
		addrs[i] = addr.Unmap()
		if ports[i], ok = parsePort(fields[2+i]); !ok {
			return h, false
		}
	}
	return Header{netip.AddrPortFrom(addrs[0], ports[0]), netip.AddrPortFrom(addrs[1], ports[1])}, true
}

// parsePort reads a port without leading zeros.
func parsePort(s string) (uint16, bool) {
	if s == "" || len(s) > 5 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	n := 0
	for _, digit := range []byte(s) {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		n = 10*n + int(digit-'0')
	}
	return uint16(n), n <= 65535
}

func parseV2(b []byte) (h Header, length int, err error) {
	const fixed = len(signature) + 4
	if len(b) < fixed {
		return h, 0, nil
	}
	command, kind := b[len(signature)], b[len(signature)+1]
	n := int(binary.BigEndian.Uint16(b[len(signature)+2:]))
	switch {
	case command != local && command != proxied, !isKind(kind):
		return h, 0, ErrBad
	case fixed+n > MaxHeader:
		return h, 0, ErrTooLong
	case len(b) < fixed+n:
		return h, 0, nil
	case command == local: // what follows does not matter
		return h, fixed + n, nil
	}
	h, ok := addressesOf(kind, b[fixed:fixed+n])
	if !ok {
		return h, 0, ErrBad
	}
	return h, fixed + n, nil
}

// isKind reports whether there is such a kind of addresses. The protocol has receivers refuse any other, also beside LOCAL.
func isKind(kind byte) bool {
	switch kind {
	case unspecified, overTCP4, overUDP4, overTCP6, overUDP6, overUnix, overUnixD:
		return true
	}
	return false
}

// addressesOf reads the addresses of a kind; false: there are too few bytes.
func addressesOf(kind byte, b []byte) (h Header, ok bool) {
	var from, to []byte
	switch kind {
	case unspecified: // the sender does not know
		return h, true
	case overUnix, overUnixD:
		return h, len(b) >= addressesUnix
	case overTCP4, overUDP4:
		if len(b) < addresses4 {
			return h, false
		}
		from, to, b = b[:4], b[4:8], b[8:]
	case overTCP6, overUDP6:
		if len(b) < addresses6 {
			return h, false
		}
		from, to, b = b[:16], b[16:32], b[32:]
	}
	return Header{addrPort(from, b), addrPort(to, b[2:])}, true
}

func addrPort(ip, port []byte) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), binary.BigEndian.Uint16(port))
}
