package sockopt

import (
	"net"
	"time"

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
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
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
