//go:build !unix

package proxy

import (
	"net"
	"syscall"
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

func (b *udpBackend) receive() (buf *datagramBuffer, n int, err error) {
	buf = datagramBuffers.Get().(*datagramBuffer)
	if n, err = b.io.conn.Read(buf[:]); err != nil {
		datagramBuffers.Put(buf)
		return nil, 0, err
	}
	return buf, n, nil
}

// Without the system's own errors every error of a socket is a refusal by its endpoint.

func isOurTrouble(error) bool { return false }
func isTooLong(error) bool    { return false }

// withoutBroadcast does nothing: here the socket is as package net makes it.
func withoutBroadcast(_, _ string, _ syscall.RawConn) error { return nil }
