package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"strings"

	"kubeproxy/registry"
)

// A Header says who the client of a proxy is, and where it connected to. Both addresses are zero if the header does not say: the
// connection is the proxy's own (LOCAL), or of a kind without IP addresses. An IPv4 address is never in its IPv6 spelling.
type Header struct{ Source, Destination netip.AddrPort }

// How long headers may be. Version 2 has a field of 16 bits for its length. MaxHeader is as much as a waiting client may take: what HAProxy's
// buffer holds by default. Who reads so many bytes has the whole header, or what is no header.
const (
	maxV1     = 107
	MaxHeader = 16 << 10
)

// The errors of Parse. Each means that what was read is no header.
var (
	ErrNoHeader  = errors.New("it does not begin with a PROXY header")
	ErrTooLong   = fmt.Errorf("its PROXY header is longer than %d bytes, or %d of version 1", MaxHeader, maxV1)
	ErrBad       = errors.New("its PROXY header is malformed")
	ErrTransport = errors.New("its PROXY header is that of another transport")
	ErrTLV       = errors.New("its PROXY header has malformed extensions (TLVs)")
	ErrChecksum  = errors.New("its PROXY header has a false checksum (CRC-32C)")
)

// Parse reads the header at the beginning of b, which may go on behind it, and returns how long it is. 0 without an error means that b
// is the beginning of a header, and more has to come: never with [MaxHeader] bytes. A header of version 2 must be about the protocol over
// which it came. Its extensions (TLVs) must be well formed, and a checksum among them correct; see [Extensions] for what else they say.
func Parse(b []byte, protocol registry.Protocol) (h Header, length int, err error) {
	const word = "PROXY "
	switch {
	case hasPrefix(b, signature):
		return parseV2(b, protocol)
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

func parseV2(b []byte, protocol registry.Protocol) (h Header, length int, err error) {
	const fixed = len(signature) + 4
	if len(b) < fixed {
		return h, 0, nil
	}
	command, kind := b[len(signature)], b[len(signature)+1]
	length = fixed + int(binary.BigEndian.Uint16(b[len(signature)+2:]))
	addresses, known := addressLength(kind)
	switch {
	case command != local && command != proxied, !known, command == proxied && length < fixed+addresses:
		return h, 0, ErrBad
	case command == proxied && kind != unspecified && isDatagram(kind) != (protocol == registry.UDP):
		return h, 0, ErrTransport
	case length > MaxHeader:
		return h, 0, ErrTooLong
	case len(b) < length:
		return h, 0, nil
	case command == local, kind == unspecified: // what follows does not matter, and where its addresses end is not known
		return h, length, nil
	}
	if err := checkTLVs(b[:length], fixed+addresses); err != nil {
		return h, 0, err
	}
	return addressesOf(kind, b[fixed:]), length, nil
}

// addressLength returns how long the addresses of a kind are. known is false if there is no such kind: the protocol has receivers refuse it, also
// beside LOCAL.
func addressLength(kind byte) (n int, known bool) {
	switch kind {
	case unspecified:
		return 0, true
	case overTCP4, overUDP4:
		return addresses4, true
	case overTCP6, overUDP6:
		return addresses6, true
	case overUnix, overUnixD:
		return addressesUnix, true
	}
	return 0, false
}

// isDatagram reports whether a kind of addresses is that of datagrams.
func isDatagram(kind byte) bool { return kind&0xf == overUDP4&0xf }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkTLVs returns an error unless the TLVs of a header, from an offset to its end, are well formed, and a checksum among them is right. It
// is that of the header with four zeros in its place.
func checkTLVs(header []byte, offset int) error {
	const fixed, crcLength = 3, 4
	for offset < len(header) {
		if offset+fixed > len(header) {
			return ErrTLV
		}
		value := offset + fixed
		end := value + int(binary.BigEndian.Uint16(header[offset+1:]))
		switch {
		case end > len(header), header[offset] == typeCRC32C && end-value != crcLength:
			return ErrTLV
		case header[offset] == typeCRC32C:
			sum := crc32.Update(0, castagnoli, header[:value])
			sum = crc32.Update(sum, castagnoli, make([]byte, crcLength))
			sum = crc32.Update(sum, castagnoli, header[end:])
			if sum != binary.BigEndian.Uint32(header[value:end]) {
				return ErrChecksum
			}
		}
		offset = end
	}
	return nil
}

// addressesOf reads the addresses of a kind. Those of UNIX sockets are not given.
func addressesOf(kind byte, b []byte) Header {
	var from, to []byte
	switch kind {
	case overTCP4, overUDP4:
		from, to, b = b[:4], b[4:8], b[8:]
	case overTCP6, overUDP6:
		from, to, b = b[:16], b[16:32], b[32:]
	default:
		return Header{}
	}
	return Header{addrPort(from, b), addrPort(to, b[2:])}
}

func addrPort(ip, port []byte) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), binary.BigEndian.Uint16(port))
}
