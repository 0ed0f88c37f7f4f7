//go:build unix

package portable

import (
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/udp"
)

// A udpIO makes single system calls on a socket that package net holds in non-blocking mode. Its
// callbacks are made once, for a closure made for each datagram would be an allocation for each.
type udpIO struct {
	raw syscall.RawConn

	out     []byte // what write is to send
	outErr  error
	write   func(fd uintptr) bool
	in      *udp.DatagramBuffer // what read has received
	inLen   int
	inErr   error
	lock    sync.Locker
	found   func(n int, err error)
	receive func(fd uintptr) bool
}

func (u *udpIO) init(conn *net.UDPConn) (err error) {
	u.raw, err = conn.SyscallConn()
	u.write = func(fd uintptr) bool {
		_, u.outErr = sockopt.IgnoringEINTR(unix.Write, int(fd), u.out)
		return true // also when the queue is full: we don't wait
	}
	u.receive = func(fd uintptr) bool {
		in := udp.DatagramBuffers.Get().(*udp.DatagramBuffer)
		u.lock.Lock()
		defer u.lock.Unlock()
		u.inLen, u.inErr = sockopt.IgnoringEINTR(unix.Read, int(fd), in[:])
		if u.inErr != unix.EAGAIN && u.inErr != unix.EMSGSIZE {
			u.found(u.inLen, u.inErr)
		}
		if u.inErr != nil {
			udp.DatagramBuffers.Put(in)
			return u.inErr != unix.EAGAIN // then we are called again once there is something
		}
		u.in = in
		return true
	}
	return err
}

// send sends one datagram, or returns an error at once.
func (b *udpBackend) send(datagram []byte) error {
	u := &b.io
	u.out = datagram
	defer func() { u.out = nil }()
	if err := u.raw.Write(u.write); err != nil {
		return err
	}
	if u.outErr != unix.EMSGSIZE {
		return u.outErr
	}
	// Either the datagram is too long for this family, or the path turned out to carry less than an
	// earlier one needed, and this is only how we learn of it: then the kernel knows better now.
	if err := u.raw.Write(u.write); err != nil {
		return err
	}
	return u.outErr
}

// receive waits for one datagram, or an error. It holds the lock while it reads, though not while it waits, and until found has been told
// what it has read. The caller gives the buffer back to DatagramBuffers.
func (b *udpBackend) receive(lock sync.Locker, found func(n int, err error)) (buf *udp.DatagramBuffer, n int, err error) {
	u := &b.io
	u.lock, u.found = lock, found
	for {
		if err := u.raw.Read(u.receive); err != nil {
			return nil, 0, err
		}
		if u.inErr != unix.EMSGSIZE { // an earlier one we sent was too long for the path; see send
			break
		}
	}
	buf, u.in = u.in, nil
	return buf, u.inLen, u.inErr
}
