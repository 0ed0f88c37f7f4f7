package proxy

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// A delivery is what the kernel tells about the way from us to a peer (TCP_INFO, tcp(7)).
type delivery struct {
	acked   uint64 // bytes that the peer's kernel has confirmed
	pending bool   // something, if only a FIN, has not been confirmed yet
	dead    bool   // the connection is no more: it was reset, or has timed out

	unanswered int           // times that the kernel has sent the same again, or a probe
	silent     time.Duration // since the peer's kernel last said anything
}

// tcpClose is TCP_CLOSE of the kernel's tcp_states.h.
const tcpClose = 7

// inspect asks the kernel about a connection. Of one that is closed there is nothing to tell.
func inspect(conn *net.TCPConn) (d delivery) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return delivery{}
	}
	raw.Control(func(fd uintptr) { d = inspectTCP(int(fd)) })
	return d
}

// inspectTCP is inspect for a bare descriptor.
func inspectTCP(fd int) delivery {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return delivery{}
	}
	return delivery{
		acked:      info.Bytes_acked,
		pending:    info.State != tcpClose && (info.Unacked > 0 || info.Notsent_bytes > 0),
		dead:       info.State == tcpClose,
		unanswered: int(info.Retransmits) + int(info.Probes),
		silent:     time.Duration(info.Last_ack_recv) * time.Millisecond,
	}
}
