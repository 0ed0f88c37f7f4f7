//go:build unix

package proxy

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// A udpIO makes single system calls on a socket that package net holds in non-blocking mode. Its
// callbacks are made once, for a closure made for each datagram would be an allocation for each.
type udpIO struct {
	raw syscall.RawConn

	out     []byte // what write is to send
	outErr  error
	write   func(fd uintptr) bool
	in      *datagramBuffer // what read has received
	inLen   int
	inErr   error
	receive func(fd uintptr) bool
}

func (u *udpIO) init(conn *net.UDPConn) (err error) {
	u.raw, err = conn.SyscallConn()
	u.write = func(fd uintptr) bool {
		_, u.outErr = ignoringEINTR(unix.Write, int(fd), u.out)
		return true // also when the queue is full: we don't wait
	}
	u.receive = func(fd uintptr) bool {
		in := datagramBuffers.Get().(*datagramBuffer)
		u.inLen, u.inErr = ignoringEINTR(unix.Read, int(fd), in[:])
		if u.inErr != nil {
			datagramBuffers.Put(in)
			return u.inErr != unix.EAGAIN // then we are called again once there is something
		}
		u.in = in
		return true
	}
	return err
}

func ignoringEINTR(call func(int, []byte) (int, error), fd int, p []byte) (n int, err error) {
	for {
		if n, err = call(fd, p); err != unix.EINTR {
			return n, err
		}
	}
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

// receive waits for one datagram. The caller gives the buffer back to datagramBuffers.
func (b *udpBackend) receive() (buf *datagramBuffer, n int, err error) {
	u := &b.io
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

// isOurTrouble tells whether it is this machine that cannot send just now: its queues or its local
// ports are used up, or its firewall dropped the datagram (EPERM; so it does when the table of
// connections that it tracks is full). No endpoint is to blame for that.
func isOurTrouble(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EPERM)
}

// isTooLong tells whether a datagram could not be sent because of its length.
func isTooLong(err error) bool { return errors.Is(err, unix.EMSGSIZE) }

// withoutBroadcast has the kernel refuse broadcast addresses (socket(7), SO_BROADCAST).
func withoutBroadcast(_, _ string, raw syscall.RawConn) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 0) }); cerr != nil {
		return cerr
	}
	return err
}
