package ports

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// InUse finds out which of some listeners other sockets keep us from: by TCP those with a listener, by UDP all that are bound. bind is the
// address of the listeners of the node; own are listeners of ours, which keep us from none. It asks the kernel for its sockets (sock_diag(7))
// and opens none. Where the kernel does not answer, it tries the ports.
func InUse(bind netip.Addr, ids, own []registry.ListenerID) map[registry.ListenerID]bool {
	inUse := make(map[registry.ListenerID]bool)
	asked := make(map[registry.ListenerID][]registry.ListenerID, len(ids)) // by the listener of the port at the node
	var protocols [2]bool
	for _, id := range ids {
		asked[id.AtNode()] = append(asked[id.AtNode()], id)
		protocols[id.Protocol] = true
	}
	bind = bind.Unmap()
	isOurs := func(s boundSocket, id registry.ListenerID) bool {
		if at := s.local.Addr(); at != bind && !(at.IsUnspecified() && bind.IsUnspecified()) {
			id.Addr = at
		}
		return slices.Contains(own, id)
	}
	for protocol, wanted := range protocols {
		if !wanted {
			continue
		}
		protocol := registry.Protocol(protocol)
		for _, family := range [...]uint8{unix.AF_INET, unix.AF_INET6} {
			err := eachSocket(family, protocol, func(s boundSocket) {
				port := registry.ListenerID{Protocol: protocol, Number: s.local.Port()}
				if len(asked[port]) == 0 || isOurs(s, port) {
					return
				}
				for _, id := range asked[port] {
					at := bind
					if id.Addr.IsValid() {
						at = id.Addr
					}
					if s.excludes(at) {
						inUse[id] = true
					}
				}
			})
			if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
				return tried(bind, ids, own)
			}
		}
	}
	return inUse
}

// A boundSocket is a socket of any program.
type boundSocket struct {
	local  netip.AddrPort // unmapped
	v6Only bool
}

// excludes reports whether no other socket can be bound to the same port at an address.
func (s boundSocket) excludes(bind netip.Addr) bool {
	at, bind := s.local.Addr(), bind.Unmap()
	switch {
	case bind.IsUnspecified(): // which for us means both families
		return true
	case at == netip.IPv6Unspecified():
		return bind.Is6() || !s.v6Only
	case at.IsUnspecified():
		return bind.Is4()
	}
	return at == bind.WithZone("")
}

// What sock_diag(7) takes and gives, of linux/inet_diag.h.
const (
	tcpListen    = 10 // TCP_LISTEN, in linux/tcp_states.h
	diagRequest  = 56 // bytes of inet_diag_req_v2
	diagMessage  = 72 // bytes of inet_diag_msg
	diagV6Only   = 11 // INET_DIAG_SKV6ONLY
	diagPatience = 2  // seconds
)

// eachSocket asks the kernel for all listening TCP sockets, or for all UDP sockets, of a family.
func eachSocket(family uint8, protocol registry.Protocol, use func(boundSocket)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: diagPatience}); err != nil {
		return err
	}
	request := make([]byte, unix.NLMSG_HDRLEN+diagRequest)
	native := binary.NativeEndian
	native.PutUint32(request, uint32(len(request)))
	native.PutUint16(request[4:], unix.SOCK_DIAG_BY_FAMILY)
	native.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	body := request[unix.NLMSG_HDRLEN:]
	body[0], body[1] = family, unix.IPPROTO_TCP
	native.PutUint32(body[4:], 1<<tcpListen)
	if protocol == registry.UDP {
		body[1] = unix.IPPROTO_UDP
		native.PutUint32(body[4:], ^uint32(0))
	}
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := sockopt.IgnoringEINTR(unix.Read, fd, buffer)
		if err != nil {
			return err
		}
		for rest := buffer[:n]; len(rest) >= unix.NLMSG_HDRLEN; {
			length := int(native.Uint32(rest))
			if length < unix.NLMSG_HDRLEN || length > len(rest) {
				return errTornDiag
			}
			message := rest[unix.NLMSG_HDRLEN:length]
			switch native.Uint16(rest[4:]) {
			case unix.NLMSG_DONE:
				return nil
			case unix.NLMSG_ERROR:
				if len(message) < 4 {
					return errTornDiag
				}
				return unix.Errno(-int32(native.Uint32(message)))
			case unix.SOCK_DIAG_BY_FAMILY:
				if s, ok := parseSocket(message); ok {
					use(s)
				}
			}
			rest = rest[min(len(rest), (length+3)&^3):]
		}
	}
}

var errTornDiag = errors.New("sock_diag: torn message")

// parseSocket reads an inet_diag_msg and what follows it.
func parseSocket(message []byte) (s boundSocket, ok bool) {
	if len(message) < diagMessage {
		return s, false
	}
	port := binary.BigEndian.Uint16(message[4:])
	addr := netip.AddrFrom16([16]byte(message[8:24]))
	if message[0] == unix.AF_INET {
		addr = netip.AddrFrom4([4]byte(message[8:12]))
	}
	s.local = netip.AddrPortFrom(addr.Unmap(), port)
	for rest := message[diagMessage:]; len(rest) >= 4; {
		length := int(binary.NativeEndian.Uint16(rest))
		if length < 4 || length > len(rest) {
			break
		}
		if binary.NativeEndian.Uint16(rest[2:]) == diagV6Only && length > 4 {
			s.v6Only = rest[4] != 0
		}
		rest = rest[min(len(rest), (length+3)&^3):]
	}
	return s, true
}

// OwnLocal returns the local ports of the connections and connected UDP sockets of this process that keep it from listening there.
func OwnLocal() map[registry.ListenerID]bool {
	own := make(map[registry.ListenerID]bool)
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return own
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if _, err := unix.Getpeername(fd); err != nil {
			continue // no socket, or one that listens
		}
		addr, err := unix.Getsockname(fd)
		if err != nil {
			continue
		}
		var id registry.ListenerID
		switch addr := addr.(type) {
		case *unix.SockaddrInet4:
			id.Number = uint16(addr.Port)
		case *unix.SockaddrInet6:
			id.Number = uint16(addr.Port)
		}
		kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		if err != nil || id.Number == 0 {
			continue
		}
		if kind == unix.SOCK_DGRAM {
			id.Protocol = registry.UDP
		} else if reuse, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR); err != nil || reuse != 0 {
			continue // it keeps no listener out; a client's connection has it from the listener, and its local port is the service's
		}
		own[id] = true
	}
	return own
}
