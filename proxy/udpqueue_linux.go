package proxy

import (
	"encoding/binary"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// A udpQueue tells how full the kernel's queue of a socket is: what was received and not read yet.
type udpQueue struct {
	raw  syscall.RawConn
	look func(fd uintptr) // made once, as those of udpIO

	queued, room uint32 // what look saw, in bytes of kernel memory
}

func (q *udpQueue) init(conn *net.UDPConn) (err error) {
	q.raw, err = conn.SyscallConn()
	q.look = func(fd uintptr) {
		// The first two of the numbers that SO_MEMINFO gives: rmem_alloc and rcvbuf (sock_diag(7)).
		pair, err := unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_MEMINFO)
		if err != nil {
			return
		}
		numbers := binary.NativeEndian.AppendUint64(make([]byte, 0, 8), pair)
		q.queued, q.room = binary.NativeEndian.Uint32(numbers), binary.NativeEndian.Uint32(numbers[4:])
	}
	return err
}

// filling tells whether the queue is half full or more, so that the kernel may soon drop what does
// not fit. Only the read loop asks.
func (q *udpQueue) filling() bool {
	if err := q.raw.Control(q.look); err != nil {
		return false // it is being closed
	}
	return q.queued > q.room/2
}
