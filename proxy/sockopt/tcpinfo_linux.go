package sockopt

import (
	"net"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Delivery is what the kernel tells about the way from us to a peer (TCP_INFO, tcp(7)).
type Delivery struct {
	Acked    uint64 // bytes that the peer's kernel has confirmed
	Received uint64 // bytes that have come from the peer, read or not; its FIN counts as one
	Pending  bool   // something, if only a FIN, has not been confirmed yet
	Dead     bool   // the connection is no more: it was reset, or has timed out

	Unanswered int           // times that the kernel has sent the same again, or a probe
	Silent     time.Duration // since the peer's kernel last said anything
}

// tcpStates are the names of the kernel's states, as ss(8) has them, by their numbers in tcp_states.h.
var tcpStates = [...]string{1: "ESTAB", "SYN-SENT", "SYN-RECV", "FIN-WAIT-1", "FIN-WAIT-2", "TIME-WAIT", "UNCONN", "CLOSE-WAIT", "LAST-ACK", "LISTEN", "CLOSING"}

// StateOf returns the state of a TCP socket, and for how long its peer has sent no data; "" and a negative time if the kernel does not tell.
func StateOf(fd int) (state string, idle time.Duration) {
	var info unix.TCPInfo
	if !readTCPInfo(fd, &info) || int(info.State) >= len(tcpStates) {
		return "", -1
	}
	return tcpStates[info.State], time.Duration(info.Last_data_recv) * time.Millisecond
}

// StateOfConn is StateOf for a connection of package net.
func StateOfConn(conn *net.TCPConn) (state string, idle time.Duration) {
	idle = -1
	if raw, err := conn.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { state, idle = StateOf(int(fd)) }) // fails on one that is closed
	}
	return state, idle
}

// tcpClose is TCP_CLOSE of the kernel's tcp_states.h.
const tcpClose = 7

// Inspect asks the kernel about a connection. Of one that is closed there is nothing to tell.
func Inspect(conn *net.TCPConn) (d Delivery) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Delivery{}
	}
	raw.Control(func(fd uintptr) { d = InspectTCP(int(fd)) })
	return d
}

// InspectTCP is inspect for a bare descriptor.
func InspectTCP(fd int) Delivery {
	var info unix.TCPInfo
	if !readTCPInfo(fd, &info) {
		return Delivery{}
	}
	return Delivery{
		Acked:      info.Bytes_acked,
		Received:   info.Bytes_received,
		Pending:    info.State != tcpClose && (info.Unacked > 0 || info.Notsent_bytes > 0),
		Dead:       info.State == tcpClose,
		Unanswered: int(info.Retransmits) + int(info.Probes),
		Silent:     time.Duration(info.Last_ack_recv) * time.Millisecond,
	}
}

// readTCPInfo is unix.GetsockoptTCPInfo without the garbage: each connection is looked at again and again.
func readTCPInfo(fd int, info *unix.TCPInfo) bool {
	size := uint32(unsafe.Sizeof(*info))
	_, _, errno := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO, uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&size)), 0)
	return errno == 0
}
