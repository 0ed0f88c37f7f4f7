package proxytest

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// Forge sends a datagram over IPv4 from an address that need not be the sender's. That takes CAP_NET_RAW, so most often a network of its
// own.
func Forge(t testing.TB, from, to netip.AddrPort) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const head, text = 28, "forged"
	packet := make([]byte, head, head+len(text))
	packet[0], packet[8], packet[9] = 4<<4|5, 64, unix.IPPROTO_UDP // the kernel fills in the lengths and the checksum of IP
	copy(packet[12:], from.Addr().AsSlice())
	copy(packet[16:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(packet[20:], from.Port())
	binary.BigEndian.PutUint16(packet[22:], to.Port())
	binary.BigEndian.PutUint16(packet[24:], 8+uint16(len(text))) // without a checksum of UDP
	if err := unix.Sendto(fd, append(packet, text...), 0, &unix.SockaddrInet4{Addr: to.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
}
