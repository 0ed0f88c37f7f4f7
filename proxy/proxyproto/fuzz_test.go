package proxyproto

import (
	"bufio"
	"bytes"
	"net"
	"net/netip"
	"testing"

	pires "github.com/pires/go-proxyproto"

	"kubeproxy/registry"
)

// FuzzParse compares the reading of a header with that of another library, go-proxyproto. The two may differ in this only:
//
//   - Version 2 without a kind of addresses is a header here, whose sender does not say. The protocol leaves that to the receiver.
//   - The library takes longer headers than [MaxHeader], headers of datagrams over TCP, malformed extensions, and false checksums.
//   - The library takes ports of version 1 with leading zeros or a sign.
func FuzzParse(f *testing.F) {
	const room = 64 << 10             // the library takes no header that is longer than its reader's buffer
	pires.MaxV2HeaderSize = 1<<16 - 1 // or than this
	for _, c := range readings {
		f.Add([]byte(c.header))
		f.Add([]byte(c.header + "GET /"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := Parse(b, registry.TCP)
		switch {
		case n < 0 || n > len(b) || n > MaxHeader || err != nil && (n != 0 || h != Header{}):
			t.Fatalf("%q: %+v, %d, %v", b, h, n, err)
		case n == 0 && err == nil:
			if len(b) >= MaxHeader {
				t.Fatalf("%d bytes, and more has to come: %q", len(b), b)
			}
			return
		case h.Source.Addr().Is4In6() || h.Destination.Addr().Is4In6() || h.Source.IsValid() != h.Destination.IsValid():
			t.Fatalf("%q: %+v", b, h)
		}
		reader := bufio.NewReaderSize(bytes.NewReader(b), room)
		theirs, theirErr := pires.Read(reader)
		switch {
		case err != nil && theirErr == nil:
			if err == ErrBad && theirs.Version == 2 {
				t.Fatalf("%q: %v, and go-proxyproto reads %+v", b, err, theirs)
			}
			return // a port of version 1, or its length
		case err == nil && theirErr != nil:
			if n > 16 && b[13] == unspecified || n == 16 && b[12] == proxied && b[13] == unspecified {
				return
			}
			t.Fatalf("%q: %+v, and go-proxyproto finds %v", b, h, theirErr)
		case err != nil:
			return
		}
		rest := reader.Buffered()
		if len(b)-rest != n && len(b) <= room {
			t.Fatalf("%q: %d bytes; go-proxyproto takes %d", b, n, len(b)-rest)
		}
		if src, dst := addrPortOf(theirs, theirs.SourceAddr), addrPortOf(theirs, theirs.DestinationAddr); src != h.Source || dst != h.Destination {
			t.Fatalf("%q: %+v; go-proxyproto has %v and %v", b, h, src, dst)
		}
	})
}

// addrPortOf returns what counts of an address that go-proxyproto has read.
func addrPortOf(h *pires.Header, addr net.Addr) netip.AddrPort {
	if h.Command == pires.LOCAL {
		return netip.AddrPort{}
	}
	var at netip.AddrPort
	switch addr := addr.(type) {
	case *net.TCPAddr:
		at = addr.AddrPort()
	case *net.UDPAddr:
		at = addr.AddrPort()
	default:
		return at
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// FuzzAppend has go-proxyproto read what this package writes.
func FuzzAppend(f *testing.F) {
	f.Add([]byte{192, 0, 2, 1}, []byte{198, 51, 100, 7}, uint16(51544), uint16(80), true, false)
	f.Add(client6.Addr().AsSlice(), []byte{198, 51, 100, 7}, uint16(1), uint16(0), false, true)
	f.Fuzz(func(t *testing.T, from, to []byte, fromPort, toPort uint16, second, datagram bool) {
		a, okA := netip.AddrFromSlice(from)
		b, okB := netip.AddrFromSlice(to)
		if !okA || !okB {
			return
		}
		src, dst := netip.AddrPortFrom(a.Unmap(), fromPort), netip.AddrPortFrom(b.Unmap(), toPort)
		version := registry.ProxyV1
		if second {
			version = registry.ProxyV2
		}
		header := Append(nil, version, src, dst)
		if second && datagram {
			header = AppendDatagram(nil, version, src, dst)
		}
		theirs, err := pires.Read(bufio.NewReader(bytes.NewReader(header)))
		if err != nil {
			t.Fatalf("%q: %v", header, err)
		}
		if got := addrPortOf(theirs, theirs.SourceAddr); got != src {
			t.Errorf("%q: from %v; want %v", header, got, src)
		}
		if got := addrPortOf(theirs, theirs.DestinationAddr); got != dst {
			t.Errorf("%q: to %v; want %v", header, got, dst)
		}
		protocol := registry.TCP
		if second && datagram {
			protocol = registry.UDP
		}
		ours, n, err := Parse(header, protocol)
		if err != nil || n != len(header) || ours != (Header{src, dst}) {
			t.Errorf("%q reads back as %+v, %d, %v", header, ours, n, err)
		}
	})
}
