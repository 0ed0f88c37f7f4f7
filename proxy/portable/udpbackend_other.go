//go:build !unix

package portable

import (
	"net"

	"kubeproxy/proxy/udp"
)

// udpIO is package net's own way: sending may wait, and a buffer is held while receiving waits.
type udpIO struct{ conn *net.UDPConn }

func (u *udpIO) init(conn *net.UDPConn) error {
	u.conn = conn
	return nil
}

func (b *udpBackend) send(datagram []byte) error {
	_, err := b.io.conn.Write(datagram)
	return err
}

func (b *udpBackend) receive() (buf *udp.DatagramBuffer, n int, err error) {
	buf = udp.DatagramBuffers.Get().(*udp.DatagramBuffer)
	if n, err = b.io.conn.Read(buf[:]); err != nil {
		udp.DatagramBuffers.Put(buf)
		return nil, 0, err
	}
	return buf, n, nil
}

// Without the system's own errors every error of a socket is a refusal by its endpoint.
