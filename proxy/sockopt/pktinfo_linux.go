package sockopt

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ReceiptSpace is room for the control messages of one datagram. A socket of both families adds two
// to the datagram of an IPv4 client.
var ReceiptSpace = unix.CmsgSpace(unix.SizeofInet4Pktinfo) + unix.CmsgSpace(unix.SizeofInet6Pktinfo)

// AskReceipts makes the kernel say, with each datagram, which of our addresses it was sent to (ip(7),
// IP_PKTINFO; RFC 3542, IPV6_RECVPKTINFO). A socket of both families needs both options; one of a
// single family refuses the other's.
func AskReceipts(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var err4, err6 error
	err = raw.Control(func(fd uintptr) {
		err4 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		err6 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
	switch {
	case err != nil:
		return err
	case err4 != nil && err6 != nil:
		return fmt.Errorf("ask for destination addresses: %w, %w", err4, err6)
	}
	return nil
}

// ParseReceipt finds in the control messages of a datagram the address of ours to reply from. A datagram that was sent to an IPv6
// multicast address, such as ff02::1, has none: the kernel is to choose one of the interface.
//
// Of the two messages that come with an IPv4 datagram on a socket of both families, IP_PKTINFO
// counts: it holds an address that is ours even when the datagram was sent to a broadcast address.
func ParseReceipt(control []byte) (local LocalAddr) {
	for len(control) > 0 {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		control = rest
		switch {
		case header.Level == unix.IPPROTO_IP && header.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			local = LocalAddr{Addr: netip.AddrFrom4([4]byte(data[4:8]))} // ipi_spec_dst
		case header.Level == unix.IPPROTO_IPV6 && header.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			if local.Addr.Is4() {
				break // IP_PKTINFO has spoken
			}
			local.Addr = netip.AddrFrom16([16]byte(data[:16])).Unmap()
			isMulticast := local.Addr.IsMulticast()
			if local.Addr.Is6() && (isMulticast || local.Addr.IsLinkLocalUnicast()) {
				local.Interface = binary.NativeEndian.Uint32(data[16:20])
			}
			if isMulticast {
				local.Addr = netip.IPv6Unspecified()
			}
		}
	}
	return local
}

// ControlFrom makes the control message with which a datagram leaves from local. It names an
// interface only where the address means nothing without one: else the routing table decides, as
// it does for every other program.
func ControlFrom(local LocalAddr) []byte {
	switch {
	case local.Addr.Is4():
		return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: local.Addr.As4()})
	case local.Addr.Is6():
		return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: local.Addr.As16(), Ifindex: local.Interface})
	}
	return nil
}
