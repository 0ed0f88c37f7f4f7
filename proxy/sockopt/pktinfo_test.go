//go:build linux

package sockopt

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheControlMessageForAReplyNamesAnInterfaceOnlyIfItMust(t *testing.T) {
	for _, c := range []struct {
		local LocalAddr
		want  []byte
	}{
		{LocalAddr{}, nil},
		{LocalAddr{Addr: netip.MustParseAddr("192.0.2.1")}, unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte{192, 0, 2, 1}})},
		{LocalAddr{Addr: netip.MustParseAddr("2001:db8::1")}, unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte{0x20, 1, 0xd, 0xb8, 15: 1}})},
		{LocalAddr{netip.MustParseAddr("fe80::1"), 7}, unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte{0xfe, 0x80, 15: 1}, Ifindex: 7})},
	} {
		if got := ControlFrom(c.local); !slices.Equal(got, c.want) {
			t.Errorf("%v: got %x; want %x", c.local, got, c.want)
		}
	}
}

func TestTheLocalAddressIsFoundInWhatTheKernelSays(t *testing.T) {
	v4 := unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: 3, Spec_dst: [4]byte{192, 0, 2, 1}, Addr: [4]byte{192, 0, 2, 255}})
	mapped := unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: 3, Addr: [16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: 255}})
	global := unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: 3, Addr: [16]byte{0x20, 1, 0xd, 0xb8, 15: 1}})
	link := unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: 3, Addr: [16]byte{0xfe, 0x80, 15: 1}})
	other := unix.UnixRights(1)
	multicast := unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: 3, Addr: [16]byte{0xff, 2, 15: 1}})
	address := LocalAddr{Addr: netip.MustParseAddr("192.0.2.1")}
	for _, c := range []struct {
		name    string
		control []byte
		want    LocalAddr
	}{
		{"nothing", nil, LocalAddr{}},
		{"IPv4: an address of ours, though it was sent to a broadcast address", v4, address},
		{"IPv4 on a socket of both families", slices.Concat(mapped, v4), address},
		{"the same in the other order", slices.Concat(v4, mapped), address},
		{"IPv6", global, LocalAddr{Addr: netip.MustParseAddr("2001:db8::1")}},
		{"IPv6, link-local", link, LocalAddr{netip.MustParseAddr("fe80::1"), 3}},
		{"after a message we did not ask for", slices.Concat(other, v4), address},
		{"cut short", v4[:len(v4)-8], LocalAddr{}},
		{"a length that is too short", slices.Concat([]byte{1}, v4[1:]), LocalAddr{}},
		{"IPv6, to a multicast address: the kernel chooses one of that interface", multicast, LocalAddr{netip.IPv6Unspecified(), 3}},
	} {
		if got, want := ParseReceipt(c.control), c.want; got != want {
			t.Errorf("%s: got %v; want %v", c.name, got, want)
		}
	}
}
