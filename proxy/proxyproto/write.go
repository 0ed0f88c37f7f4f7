package proxyproto

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"kubeproxy/registry"
)

// MaxWritten is the length of the longest header that this package writes: one of version 1 (52 bytes of version 2 are fewer).
const MaxWritten = maxV1

// signature begins each header of version 2.
const signature = "\r\n\r\n\x00\r\nQUIT\n"

// What the 13th and the 14th byte of version 2 say.
const (
	local   = 0x20 // the connection is the proxy's own
	proxied = 0x21

	unspecified = 0

	overTCP4  = 0x11
	overUDP4  = 0x12
	overTCP6  = 0x21
	overUDP6  = 0x22
	overUnix  = 0x31
	overUnixD = 0x32
)

// How long the addresses of version 2 are.
const (
	addresses4    = 2*4 + 2*2
	addresses6    = 2*16 + 2*2
	addressesUnix = 2 * 108
)

// Append appends the header of a TCP connection from src to dst in a version; nothing for [registry.NoProxyHeader]. Addresses of two
// families are both written as IPv6.
func Append(b []byte, version registry.ProxyHeader, src, dst netip.AddrPort) []byte {
	switch version {
	case registry.ProxyV1:
		return appendV1(b, src, dst)
	case registry.ProxyV2:
		return appendV2(b, overTCP4, overTCP6, src, dst)
	}
	return b
}

// AppendDatagram appends the header that stands before a datagram from src to dst. Only version 2 has one: any other appends nothing.
func AppendDatagram(b []byte, version registry.ProxyHeader, src, dst netip.AddrPort) []byte {
	if version != registry.ProxyV2 {
		return b
	}
	return appendV2(b, overUDP4, overUDP6, src, dst)
}

// AppendLocal appends the header of what the proxy says on its own account, such as a check. Version 1 has none for datagrams.
func AppendLocal(b []byte, version registry.ProxyHeader, protocol registry.Protocol) []byte {
	switch {
	case version == registry.ProxyV2:
		return append(append(b, signature...), local, unspecified, 0, 0)
	case version == registry.ProxyV1 && protocol == registry.TCP:
		return append(b, "PROXY UNKNOWN\r\n"...)
	}
	return b
}

func appendV1(b []byte, src, dst netip.AddrPort) []byte {
	from, to, is4 := sameFamily(src.Addr(), dst.Addr())
	if is4 {
		b = append(b, "PROXY TCP4 "...)
	} else {
		b = append(b, "PROXY TCP6 "...)
	}
	b = append(from.AppendTo(b), ' ')
	b = append(to.AppendTo(b), ' ')
	b = append(strconv.AppendUint(b, uint64(src.Port()), 10), ' ')
	return append(strconv.AppendUint(b, uint64(dst.Port()), 10), "\r\n"...)
}

func appendV2(b []byte, over4, over6 byte, src, dst netip.AddrPort) []byte {
	from, to, is4 := sameFamily(src.Addr(), dst.Addr())
	b = append(append(b, signature...), proxied)
	if is4 {
		b = append(b, over4, 0, addresses4)
		from, to := from.As4(), to.As4()
		b = append(append(b, from[:]...), to[:]...)
	} else {
		b = append(b, over6, 0, addresses6)
		from, to := from.As16(), to.As16()
		b = append(append(b, from[:]...), to[:]...)
	}
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, src.Port()), dst.Port())
}

// sameFamily returns two addresses in one family, without zones: these mean nothing to another machine. An address that is not known
// is the unspecified one.
func sameFamily(a, b netip.Addr) (_, _ netip.Addr, is4 bool) {
	a, b = a.Unmap().WithZone(""), b.Unmap().WithZone("")
	switch {
	case !a.IsValid() && !b.IsValid():
		return netip.IPv4Unspecified(), netip.IPv4Unspecified(), true
	case !b.IsValid():
		b = unspecifiedLike(a)
	case !a.IsValid():
		a = unspecifiedLike(b)
	}
	if a.Is4() && b.Is4() {
		return a, b, true
	}
	return netip.AddrFrom16(a.As16()), netip.AddrFrom16(b.As16()), false
}

func unspecifiedLike(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
