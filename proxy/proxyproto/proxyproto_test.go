package proxyproto

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"strings"
	"testing"

	"kubeproxy/registry"
)

var (
	client4 = netip.MustParseAddrPort("192.0.2.1:51544")
	client6 = netip.MustParseAddrPort("[2001:db8::1]:51544")
	node4   = netip.MustParseAddrPort("198.51.100.7:80")
	node6   = netip.MustParseAddrPort("[2001:db8::7]:80")
)

func TestHeadersAreWrittenAsTheProtocolSays(t *testing.T) {
	linkLocal := netip.MustParseAddrPort("[fe80::1%eth0]:1")
	tcp4 := signature + "\x21\x11\x00\x0c\xc0\x00\x02\x01\xc6\x33\x64\x07\xc9\x58\x00\x50"
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"no version", Append(nil, registry.NoProxyHeader, client4, node4), ""},
		{"version 1, IPv4", Append(nil, registry.ProxyV1, client4, node4), "PROXY TCP4 192.0.2.1 198.51.100.7 51544 80\r\n"},
		{"version 1, IPv6", Append(nil, registry.ProxyV1, client6, node6), "PROXY TCP6 2001:db8::1 2001:db8::7 51544 80\r\n"},
		{"version 1, two families", Append(nil, registry.ProxyV1, client4, node6), "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::7 51544 80\r\n"},
		{"version 1, a zone", Append(nil, registry.ProxyV1, linkLocal, node6), "PROXY TCP6 fe80::1 2001:db8::7 1 80\r\n"},
		{"version 1, no destination", Append(nil, registry.ProxyV1, client4, netip.AddrPort{}), "PROXY TCP4 192.0.2.1 0.0.0.0 51544 0\r\n"},
		{"version 2, IPv4", Append([]byte("x"), registry.ProxyV2, client4, node4), "x" + tcp4},
		{"version 2, IPv4 mapped", Append(nil, registry.ProxyV2, netip.AddrPortFrom(netip.AddrFrom16(client4.Addr().As16()), client4.Port()), node4), tcp4},
		{"version 2, IPv6", Append(nil, registry.ProxyV2, client6, node6), signature + "\x21\x21\x00\x24 \x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01 \x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x07\xc9\x58\x00\x50"},
		{"a datagram", AppendDatagram(nil, registry.ProxyV2, client4, node4), strings.Replace(tcp4, "\x21\x11", "\x21\x12", 1)},
		{"a datagram and version 1", AppendDatagram(nil, registry.ProxyV1, client4, node4), ""},
		{"a check by version 1", AppendLocal(nil, registry.ProxyV1, registry.TCP), "PROXY UNKNOWN\r\n"},
		{"a check by version 2", AppendLocal(nil, registry.ProxyV2, registry.UDP), signature + "\x20\x00\x00\x00"},
		{"a check by a datagram and version 1", AppendLocal(nil, registry.ProxyV1, registry.UDP), ""},
		{"a check without a version", AppendLocal(nil, registry.NoProxyHeader, registry.TCP), ""},
	} {
		if string(c.got) != c.want {
			t.Errorf("%s: %q; want %q", c.name, c.got, c.want)
		}
		if len(c.got) > MaxWritten {
			t.Errorf("%s: %d bytes, more than MaxWritten", c.name, len(c.got))
		}
	}
}

// withTLVs is a header of version 2 with so many bytes of extensions, 0 or at least 3: one TLV that means nothing.
func withTLVs(n int) string {
	if n == 0 {
		return withRaw("")
	}
	return withRaw("\x04" + string([]byte{byte((n - 3) >> 8), byte(n - 3)}) + strings.Repeat("x", n-3))
}

// withRaw is a header of version 2 that ends with these bytes.
func withRaw(tlvs string) string {
	b := Append(nil, registry.ProxyV2, client4, node4)
	binary.BigEndian.PutUint16(b[14:], uint16(addresses4+len(tlvs)))
	return string(b) + tlvs
}

// withChecksum is a header of version 2 with its checksum between two other TLVs, changed by diff.
func withChecksum(diff uint32) string {
	const before, after = "\x02\x00\x04host\x03\x00\x04", "\x04\x00\x01x"
	sum := crc32.Checksum([]byte(withRaw(before+"\x00\x00\x00\x00"+after)), crc32.MakeTable(crc32.Castagnoli)) ^ diff
	return withRaw(before + string(binary.BigEndian.AppendUint32(nil, sum)) + after)
}

var readings = []struct {
	name, header string
	want         Header
	err          error
}{
	{"version 1, IPv4", "PROXY TCP4 192.0.2.1 198.51.100.7 51544 80\r\n", Header{client4, node4}, nil},
	{"version 1, IPv6", "PROXY TCP6 2001:db8::1 2001:db8::7 51544 80\r\n", Header{client6, node6}, nil},
	{"version 1, IPv4 in its other spelling", "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::7 51544 80\r\n", Header{client4, node6}, nil},
	{"version 1, unknown", "PROXY UNKNOWN\r\n", Header{}, nil},
	{"version 1, unknown and more", "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", Header{}, nil},
	{"version 2, IPv4", string(Append(nil, registry.ProxyV2, client4, node4)), Header{client4, node4}, nil},
	{"version 2, IPv6", string(Append(nil, registry.ProxyV2, client6, node6)), Header{client6, node6}, nil},
	{"version 2, IPv4 in its other spelling", string(Append(nil, registry.ProxyV2, client4, node6)), Header{client4, node6}, nil},
	{"version 2, LOCAL", signature + "\x20\x00\x00\x00", Header{}, nil},
	{"version 2, LOCAL with an address", signature + "\x20\x11\x00\x02ab", Header{}, nil},
	{"version 2, unspecified", signature + "\x21\x00\x00\x03abc", Header{}, nil},
	{"version 2, UNIX", signature + "\x21\x31\x00\xd8" + strings.Repeat("/", 216), Header{}, nil},
	{"version 2, UNIX with an extension", signature + "\x21\x31\x00\xdc" + strings.Repeat("/", 216) + "\x04\x00\x01x", Header{}, nil},
	{"version 2, LOCAL of a datagram", signature + "\x20\x12\x00\x02ab", Header{}, nil},
	{"version 2 with extensions", withTLVs(100), Header{client4, node4}, nil},
	{"version 2 with two extensions", withRaw("\x04\x00\x00\x05\x00\x02id"), Header{client4, node4}, nil},
	{"version 2 with a checksum", withChecksum(0), Header{client4, node4}, nil},
	{"version 2 of 537 bytes", withTLVs(537 - 28), Header{client4, node4}, nil},
	{"version 2 of 9,000 bytes", withTLVs(9000 - 28), Header{client4, node4}, nil},
	{"version 2, the longest", withTLVs(MaxHeader - 28), Header{client4, node4}, nil},

	{"version 2, of a datagram", string(AppendDatagram(nil, registry.ProxyV2, client4, node4)), Header{}, ErrTransport},
	{"version 2, of a datagram over IPv6", string(AppendDatagram(nil, registry.ProxyV2, client6, node6)), Header{}, ErrTransport},
	{"version 2, UNIX datagrams", signature + "\x21\x32\x00\xd8" + strings.Repeat("/", 216), Header{}, ErrTransport},
	{"version 2, a false checksum", withChecksum(1), Header{}, ErrChecksum},
	{"version 2, a checksum too short", withRaw("\x03\x00\x03abc"), Header{}, ErrTLV},
	{"version 2, half of an extension's length", withRaw("\x04\x00"), Header{}, ErrTLV},
	{"version 2, an extension that goes beyond the header", withRaw("\x04\x00\x05abcd"), Header{}, ErrTLV},
	{"version 2, UNIX with a malformed extension", signature + "\x21\x31\x00\xdc" + strings.Repeat("/", 216) + "\x04\x00\x02x", Header{}, ErrTLV},

	{"version 2, longer", withTLVs(MaxHeader - 27), Header{}, ErrTooLong},
	{"version 2, the longest that can be said", signature + "\x21\x11\xff\xff", Header{}, ErrTooLong},
	{"version 2, too few bytes", signature + "\x21\x11\x00\x0bxxxxxxxxxxx", Header{}, ErrBad},
	{"version 2, no kind", signature + "\x21\x13\x00\x0cxxxxxxxxxxxx", Header{}, ErrBad},
	{"version 2, LOCAL and no kind", signature + "\x20\x13\x00\x00", Header{}, ErrBad},
	{"version 3", signature + "\x31\x11\x00\x0cxxxxxxxxxxxx", Header{}, ErrBad},
	{"version 1, too long", "PROXY UNKNOWN " + strings.Repeat("x", maxV1), Header{}, ErrTooLong},
	{"version 1, LF alone", "PROXY TCP4 192.0.2.1 198.51.100.7 51544 80\n", Header{}, ErrBad},
	{"version 1, LF within", "PROXY UNKNOWN a\nb\r\n", Header{}, ErrBad},
	{"version 1, a host name", "PROXY TCP4 localhost 198.51.100.7 51544 80\r\n", Header{}, ErrBad},
	{"version 1, another family", "PROXY TCP6 192.0.2.1 198.51.100.7 51544 80\r\n", Header{}, ErrBad},
	{"version 1, a zone", "PROXY TCP6 fe80::1%eth0 2001:db8::7 51544 80\r\n", Header{}, ErrBad},
	{"version 1, leading zero of an address", "PROXY TCP4 192.0.02.1 198.51.100.7 51544 80\r\n", Header{}, ErrBad},
	{"version 1, leading zero of a port", "PROXY TCP4 192.0.2.1 198.51.100.7 051544 80\r\n", Header{}, ErrBad},
	{"version 1, a port too high", "PROXY TCP4 192.0.2.1 198.51.100.7 65536 80\r\n", Header{}, ErrBad},
	{"version 1, a negative port", "PROXY TCP4 192.0.2.1 198.51.100.7 -1 80\r\n", Header{}, ErrBad},
	{"version 1, a field more", "PROXY TCP4 192.0.2.1 198.51.100.7 51544 80 \r\n", Header{}, ErrBad},
	{"version 1, a field less", "PROXY TCP4 192.0.2.1 198.51.100.7 51544\r\n", Header{}, ErrBad},
	{"version 1, two spaces", "PROXY  TCP4 192.0.2.1 198.51.100.7 51544 80\r\n", Header{}, ErrBad},
	{"version 1, lower case", "proxy TCP4 192.0.2.1 198.51.100.7 51544 80\r\n", Header{}, ErrNoHeader},
	{"a request", "GET / HTTP/1.1\r\n\r\n", Header{}, ErrNoHeader},
}

func TestHeadersAreReadAsTheProtocolSays(t *testing.T) {
	for _, c := range readings {
		const request = "GET / HTTP/1.1\r\n\r\nPROXY TCP4"
		h, n, err := Parse([]byte(c.header+request), registry.TCP)
		if h != c.want || err != c.err {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.name, h, err, c.want, c.err)
		}
		want := len(c.header)
		if err != nil {
			want = 0
		}
		if n != want {
			t.Errorf("%s: its length is %d; want %d", c.name, n, want)
		}
	}
}

func TestAHeaderOfADatagramIsReadWhereDatagramsCome(t *testing.T) {
	for header, want := range map[string]error{
		string(AppendDatagram(nil, registry.ProxyV2, client6, node6)): nil,
		string(Append(nil, registry.ProxyV2, client6, node6)):         ErrTransport,
	} {
		h, n, err := Parse([]byte(header), registry.UDP)
		if err != want || err == nil && (n != len(header) || h != Header{client6, node6}) {
			t.Errorf("%q: %+v, %d, %v; want error %v", header, h, n, err, want)
		}
	}
}

// A reader that gets byte by byte comes to the same end as soon as it can be known.
func TestTheBeginningOfAHeaderIsNoError(t *testing.T) {
	for _, c := range readings {
		if c.err != nil {
			continue
		}
		for i := range len(c.header) {
			if h, n, err := Parse([]byte(c.header[:i]), registry.TCP); h != (Header{}) || n != 0 || err != nil {
				t.Errorf("%s: after %d of %d bytes it is %+v, %d, %v", c.name, i, len(c.header), h, n, err)
			}
		}
	}
}

func TestReadingTheSecondVersionAllocatesNothing(t *testing.T) {
	b := Append(nil, registry.ProxyV2, client6, node6)
	room := make([]byte, 0, MaxWritten)
	if n := testing.AllocsPerRun(100, func() {
		_, _, _ = Parse(b, registry.TCP)
		room = Append(room[:0], registry.ProxyV1, client6, node6)
		room = Append(room[:0], registry.ProxyV2, client6, node6)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	room := make([]byte, 0, MaxWritten)
	for b.Loop() {
		room = Append(room[:0], registry.ProxyV2, client4, node4)
	}
}

func BenchmarkParse(b *testing.B) {
	header := Append(nil, registry.ProxyV2, client4, node4)
	for b.Loop() {
		_, _, _ = Parse(header, registry.TCP)
	}
}
