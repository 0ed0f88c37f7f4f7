//go:build !unix

package portable

import (
	"errors"
	"net"
	"os"
	"sync"

	"kubeproxy/proxy/udp"
)

// udpIO is package net's own way: sending may wait, a buffer is held while receiving waits, and the lock is taken only after a read. So a
// refusal may be read before a datagram is sent, and noted after it: then that one is lost, and counts as sent.
type udpIO struct{ conn *net.UDPConn }

func (u *udpIO) init(conn *net.UDPConn) error {
	u.conn = conn
	return nil
}

func (b *udpBackend) send(datagram []byte) error {
	_, err := b.io.conn.Write(datagram)
	return err
}

func (b *udpBackend) receive(lock sync.Locker, found func(n int, err error)) (buf *udp.DatagramBuffer, n int, err error) {
	buf = udp.DatagramBuffers.Get().(*udp.DatagramBuffer)
	n, err = b.io.conn.Read(buf[:])
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		lock.Lock()
		found(n, err)
		lock.Unlock()
	}
	if err != nil {
		udp.DatagramBuffers.Put(buf)
		return nil, 0, err
	}
	return buf, n, nil
}

// Without the system's own errors every error of a socket is a refusal by its endpoint.
