package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// maxDatagram is more than a UDP datagram can hold: its length has 16 bits and counts 8 bytes of
// header (RFC 768). One that fills a buffer of this size was cut. v0.4 cut all at 4096 bytes (D41).
const maxDatagram = 1<<16 - 1

// A datagramBuffer has room for any datagram.
type datagramBuffer [maxDatagram]byte

var datagramBuffers = sync.Pool{New: func() any { return new(datagramBuffer) }}

// A udpBackend is a session's socket, connected to one endpoint: only that endpoint's datagrams
// arrive on it, and its refusals do, as errors. It sends without ever waiting, and holds no buffer
// while it waits for a datagram (see udpbackend_unix.go).
//
// One goroutine at a time may send, and one receive.
type udpBackend struct {
	endpoint *endpoint
	conn     *net.UDPConn
	io       udpIO
	began    time.Duration // by the clock of sinceStart
	answered bool          // the endpoint has sent something; only the session's goroutine looks
	refused  bool          // it has refused a datagram; guarded by the session's mu
}

// toEndpoint dials endpoints by UDP. Package net lets its sockets send to broadcast addresses; without that the kernel refuses all those
// of this machine's networks.
var toEndpoint = net.Dialer{Control: withoutBroadcast}

// dialUDPBackend opens a socket connected to addr. That sends nothing: whether anybody is there
// shows only later. Its first read deadline is set right away: v0.4 set it after the first write,
// and a session whose first write failed never ended (D40).
func dialUDPBackend(e *endpoint, addr netip.AddrPort, timeout time.Duration) (*udpBackend, error) {
	conn, err := toEndpoint.DialUDP(context.Background(), "udp", netip.AddrPort{}, addr)
	if err != nil {
		return nil, err
	}
	if ours := conn.LocalAddr().(*net.UDPAddr).AddrPort(); ours.Port() == addr.Port() && ours.Addr().Unmap() == addr.Addr() {
		conn.Close()
		return nil, errReachedItself
	}
	b := &udpBackend{endpoint: e, conn: conn, began: sinceStart()}
	if err := errors.Join(b.io.init(conn), conn.SetReadDeadline(time.Now().Add(timeout))); err != nil {
		conn.Close()
		return nil, err
	}
	return b, nil
}
