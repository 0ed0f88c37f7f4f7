package admit

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// IsRoutedHere asks the kernel for the route to an address (rtnetlink(7), RTM_GETROUTE), and reports whether its type
// is local. So it is for the addresses of interfaces, and for ranges of which none is on an interface ("ip route add
// local 10.99.0.0/16 dev lo"). It takes three system calls and never waits: the kernel answers within sendto(2).
func IsRoutedHere(addr netip.Addr) bool {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	ip := addr.AsSlice()
	request := make([]byte, unix.SizeofNlMsghdr+unix.SizeofRtMsg+unix.SizeofRtAttr, 64)
	header, route, attribute := request, request[unix.SizeofNlMsghdr:], request[unix.SizeofNlMsghdr+unix.SizeofRtMsg:]
	binary.NativeEndian.PutUint32(header, uint32(len(request)+len(ip)))
	binary.NativeEndian.PutUint16(header[4:], unix.RTM_GETROUTE)
	binary.NativeEndian.PutUint16(header[6:], unix.NLM_F_REQUEST)
	route[0], route[1] = unix.AF_INET, byte(addr.BitLen()) // rtm_family, rtm_dst_len
	if addr.Is6() {
		route[0] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint16(attribute, uint16(unix.SizeofRtAttr+len(ip)))
	binary.NativeEndian.PutUint16(attribute[2:], unix.RTA_DST)
	if unix.Sendto(fd, append(request, ip...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
		return false
	}
	answer := make([]byte, 512)
	n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT)
	const typeAt = unix.SizeofNlMsghdr + 7 // rtm_type
	return err == nil && n > typeAt && binary.NativeEndian.Uint16(answer[4:]) == unix.RTM_NEWROUTE && answer[typeAt] == unix.RTN_LOCAL
}
