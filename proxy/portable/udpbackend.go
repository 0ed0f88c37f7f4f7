package portable

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/udp"
)

// A udpBackend is a session's socket, connected to one endpoint: only that endpoint's datagrams
// arrive on it, and its refusals do, as errors. On UNIX it sends without waiting, and
// holds no buffer while it waits for a datagram: see udpbackend_unix.go. For other systems see udpbackend_other.go.
//
// One goroutine at a time may send, and one receive.
type udpBackend struct {
	udp.Visit // guarded by the session's mu
	conn      *net.UDPConn
	io        udpIO
	isRead    bool // something was read since lost replies were last counted; the deadline for the next count is set. Guarded by the session's mu
}

// toEndpoint dials endpoints by UDP. Package net lets its sockets send to broadcast addresses; without that the kernel refuses all those
// of this machine's networks.
var toEndpoint = net.Dialer{Control: sockopt.WithoutBroadcast}

// dialUDPBackend opens a socket connected to addr. That sends nothing: whether an endpoint is there
// shows only later. Its first read deadline is set right away: v0.4 set it after the first write,
// and a session whose first write failed never ended (D40).
func dialUDPBackend(e *rotation.Endpoint, addr netip.AddrPort, timeout time.Duration) (*udpBackend, error) {
	conn, err := toEndpoint.DialUDP(context.Background(), "udp", netip.AddrPort{}, addr)
	if err != nil {
		return nil, err
	}
	if ours := conn.LocalAddr().(*net.UDPAddr).AddrPort(); ours.Port() == addr.Port() && ours.Addr().Unmap() == addr.Addr() {
		conn.Close()
		return nil, admit.ErrReachedItself
	}
	_ = conn.SetReadBuffer(udp.ReplyBuffer) // a smaller one works too
	b := &udpBackend{Visit: udp.Visit{Endpoint: e, To: addr, Began: monotonic.Now()}, conn: conn}
	if err := errors.Join(b.io.init(conn), conn.SetReadDeadline(time.Now().Add(timeout))); err != nil {
		conn.Close()
		return nil, err
	}
	return b, nil
}
