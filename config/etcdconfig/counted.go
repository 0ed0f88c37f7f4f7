package etcdconfig

import (
	"net"
	"sync/atomic"
)

// Counted adds what a connection receives, in bytes, to received.
func Counted(conn net.Conn, received *atomic.Int64) net.Conn { return counted{conn, received} }

type counted struct {
	net.Conn
	received *atomic.Int64
}

// Read implements net.Conn.
func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}
