package socket

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/udp"
)

// The system calls of event loops. All of them are made without telling the scheduler:
// they never wait, as all descriptors are in non-blocking mode. The scheduler would look every 20 us
// whether a call that it knows of still lasts, and find another thread for the loop if it does: of a short
// connection's whole cost that alone was a twentieth.
//
// Those that move bytes, datagrams or clients are repeated after EINTR, so no caller sees that. What their other failures mean:
//
//	EAGAIN                  nothing to read, no room to write: an event will say when that changes
//	ENOMEM, ENOBUFS         the kernel lacks memory (see LacksMemory): the peer is well. A connection, or the port, is left alone for
//	                        a while and tries again, as no event comes; a UDP datagram is dropped and counted; the search for an
//	                        endpoint ends
//	EMFILE, ENFILE          accept, pipe2: the same for the port; bytes are copied instead of spliced; socket: the search ends
//	ENOMEM, ENOSPC          epoll_ctl(ADD), the latter for fs.epoll.max_user_watches: a connection ends as descriptor_limit, a port
//	                        tries again. Changing or deleting what is watched needs no memory, and does not fail
//	EPIPE                   the peer had finished before it went
//	ETIMEDOUT, EHOSTUNREACH the peer has vanished
//	any other               of a connection: the peer has reset it

// None is where there is no descriptor.
const None = -1

// Read reads from a descriptor that is no socket.
func Read(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

// Write writes to a descriptor that is no socket.
func Write(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

// Receive reads from a socket.
func Receive(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// Peek reads from a socket, and leaves there what it has read.
func Peek(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_PEEK, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// Send writes to a socket. Writing would also raise a signal when the other side reads no more.
func Send(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// Close closes a descriptor. Whatever it returns, the descriptor is free afterwards: close(2).
func Close(fd int) {
	_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
}

// FinishSending sends FIN. It fails when the peer has gone, which reading will show.
func FinishSending(fd int) {
	_, _, _ = syscall.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
}

// Shutdown ends both directions of a connection, also when other processes have its socket.
func Shutdown(fd int) {
	_, _, _ = syscall.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_RDWR, 0)
}

// Disconnect resets a connection, also when other processes have its socket.
func Disconnect(fd int) {
	none := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, _ = syscall.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)), unix.SizeofSockaddrInet4)
}

// Splice moves up to n bytes.
func Splice(from, to, n int) (int, unix.Errno) {
	for {
		moved, _, errno := syscall.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if errno != unix.EINTR {
			return int(moved), errno
		}
	}
}

// Accept takes a client from the queue of a listening socket.
func Accept(fd int) (int, netip.AddrPort, unix.Errno) {
	for {
		var from unix.RawSockaddrAny
		size := uint32(unsafe.Sizeof(from))
		n, _, errno := syscall.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&from)), uintptr(unsafe.Pointer(&size)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		switch errno {
		case 0:
			return int(n), addrPort(&from), 0
		case unix.EINTR:
		default:
			return -1, netip.AddrPort{}, errno
		}
	}
}

// addrPort reads an address as the kernel writes it. An IPv4 client of a socket of both families is an
// IPv4 client.
func addrPort(from *unix.RawSockaddrAny) netip.AddrPort {
	switch from.Addr.Family {
	case unix.AF_INET:
		a := (*unix.RawSockaddrInet4)(unsafe.Pointer(from))
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), bigEndian(&a.Port))
	case unix.AF_INET6:
		a := (*unix.RawSockaddrInet6)(unsafe.Pointer(from))
		ip := netip.AddrFrom16(a.Addr).Unmap()
		if a.Scope_id != 0 {
			ip = ip.WithZone(strconv.Itoa(int(a.Scope_id)))
		}
		return netip.AddrPortFrom(ip, bigEndian(&a.Port))
	}
	return netip.AddrPort{}
}

func bigEndian(port *uint16) uint16 {
	return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(port))[:])
}

// Connect begins a connection. Without bind(2) the kernel may use one local port for connections to
// different endpoints; with it each would take one of the 28,000 for itself (ip_local_port_range).
//
// SO_REUSEADDR: else a connection of ours that was given a service's port as its own would keep the
// service from it.
func Connect(to netip.AddrPort) (int, unix.Errno) {
	family, address, size := sockaddr(to)
	n, _, errno := syscall.RawSyscall(unix.SYS_SOCKET, uintptr(family), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errno != 0 {
		return -1, errno
	}
	fd := int(n)
	_ = sockopt.Set(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // neither can fail
	_ = sockopt.Set(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	sockopt.KeepUrgent(fd)
	_, _, errno = syscall.RawSyscall(unix.SYS_CONNECT, n, uintptr(unsafe.Pointer(&address)), size)
	if errno != 0 && errno != unix.EINPROGRESS {
		Close(fd)
		return -1, errno
	}
	return fd, 0 // the kernel tells when it is there, also when it is already
}

// sockaddr writes an address as the kernel reads it.
func sockaddr(to netip.AddrPort) (family int, address unix.RawSockaddrInet6, size uintptr) {
	ip := to.Addr()
	if ip.Is4() {
		a := (*unix.RawSockaddrInet4)(unsafe.Pointer(&address))
		a.Family, a.Addr = unix.AF_INET, ip.As4()
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&a.Port))[:], to.Port())
		return unix.AF_INET, address, unix.SizeofSockaddrInet4
	}
	address.Family, address.Addr = unix.AF_INET6, ip.As16()
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&address.Port))[:], to.Port())
	if zone := ip.Zone(); zone != "" {
		address.Scope_id = zoneID(zone)
	}
	return unix.AF_INET6, address, unix.SizeofSockaddrInet6
}

// ConnectUDP opens a socket connected to an address. That sends nothing.
func ConnectUDP(to netip.AddrPort) (int, unix.Errno) {
	family, address, size := sockaddr(to)
	n, _, errno := syscall.RawSyscall(unix.SYS_SOCKET, uintptr(family), unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errno != 0 {
		return -1, errno
	}
	if _, _, errno = syscall.RawSyscall(unix.SYS_CONNECT, n, uintptr(unsafe.Pointer(&address)), size); errno != 0 {
		Close(int(n))
		return -1, errno
	}
	_ = sockopt.Set(int(n), unix.SOL_SOCKET, unix.SO_RCVBUF, udp.ReplyBuffer) // a smaller one works too
	return int(n), 0
}

// recvmmsg receives as many datagrams as there are and headers has room for.
func recvmmsg(fd int, headers []mmsghdr) (int, unix.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&headers[0])), uintptr(len(headers)), unix.MSG_DONTWAIT, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// sendmmsg sends as many datagrams as it can: if the first cannot be sent, it tells why.
func sendmmsg(fd int, headers []mmsghdr) (int, unix.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&headers[0])), uintptr(len(headers)), unix.MSG_DONTWAIT, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// Family is the address family of a socket.
func Family(fd int) int {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return unix.AF_UNSPEC
	}
	return n
}

// Outcome tells how an attempt to connect stands.
func Outcome(fd int) (connected bool, err error) {
	value, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	switch {
	case err != nil:
		return false, err
	case value != 0:
		return false, unix.Errno(value)
	}
	return PeerName(fd).IsValid(), nil
}

// LocalName is our own address of a connection.
func LocalName(fd int) netip.AddrPort { return name(unix.SYS_GETSOCKNAME, fd) }

// PeerName is the address that a socket is connected to.
func PeerName(fd int) netip.AddrPort { return name(unix.SYS_GETPEERNAME, fd) }

func name(call uintptr, fd int) netip.AddrPort {
	var name unix.RawSockaddrAny
	size := uint32(unsafe.Sizeof(name))
	if _, _, errno := syscall.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&name)), uintptr(unsafe.Pointer(&size))); errno != 0 {
		return netip.AddrPort{}
	}
	return addrPort(&name)
}

// KeepAlive has the kernel find out whether a silent peer is still there, and lets it miss three probes.
func KeepAlive(fd int, period time.Duration) {
	seconds := int32(max(1, (period+time.Second-1)/time.Second))
	_ = sockopt.Set(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds)
	_ = sockopt.Set(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds)
	_ = sockopt.Set(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, tcp.Probes)
	_ = sockopt.Set(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
}

// ResetOnClose makes closing a connection reset it.
func ResetOnClose(fd int) {
	abort := unix.Linger{Onoff: 1}
	_, _, _ = syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER, uintptr(unsafe.Pointer(&abort)), unsafe.Sizeof(abort), 0)
}

// Unacknowledged reports whether something that was written to a connection has not been confirmed by
// its peer's kernel yet.
func Unacknowledged(fd int) bool {
	var n int32
	_, _, errno := syscall.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCOUTQ, uintptr(unsafe.Pointer(&n)))
	return errno == 0 && n > 0 && sockopt.InspectTCP(fd).Pending
}

// HasUnread reports whether a connection has received something that was not read yet.
func HasUnread(fd int) bool {
	n, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
	return err == nil && n > 0
}

// SendRoom is how much may be written to a connection before it stalls. A quarter is left for what the kernel adds to each packet.
// Where it does not say, there is none.
func SendRoom(fd int) int {
	const sndbuf, queued = 3, 5 // SK_MEMINFO_SNDBUF, SK_MEMINFO_WMEM_QUEUED of linux/sock_diag.h
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0
	}
	return (int(info[sndbuf]) - int(info[queued])) * 3 / 4
}

// LacksMemory reports whether a system call failed because the kernel had no memory for it.
func LacksMemory(errno unix.Errno) bool { return errno == unix.ENOMEM || errno == unix.ENOBUFS }

// zoneID gives the index of an interface, by which the kernel knows the zone of a link-local address.
func zoneID(zone string) uint32 {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n)
	}
	if i, err := net.InterfaceByName(zone); err == nil {
		return uint32(i.Index)
	}
	return 0
}

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	unix.Msghdr
	length uint32
}
