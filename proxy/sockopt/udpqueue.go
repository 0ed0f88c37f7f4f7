package sockopt

import (
	"net"
	"syscall"
)

// A UDPQueue looks at the datagrams that wait in the kernel to be read from one port.
//
// To begin a session takes some fifty times as long as to send a datagram on. So when strangers come
// faster than they can be given sessions, the queue fills up, and what it has no room for is lost: most of what
// known clients send, too. Therefore strangers are turned away while the queue is half full. That
// takes no time to speak of: the queue empties, and known clients are heard. (In the flood of
// TestAFloodOfForgedSendersTakesNoSessionFromAKnownClient they lose nothing so, and otherwise four datagrams of five.)
type UDPQueue struct {
	raw     syscall.RawConn
	look    func(fd uintptr) // made once, for a closure made for each datagram would be an allocation for each
	crowded bool             // what look has seen
}

// Init begins to look at the queue of conn, which must outlive q.
func (q *UDPQueue) Init(conn *net.UDPConn) (err error) {
	q.raw, err = conn.SyscallConn()
	q.look = func(fd uintptr) {
		used, most, ok := QueueOf(int(fd))
		q.crowded = ok && used > most/2
	}
	return err
}

// IsCrowded reports whether the queue is more than half full. Only the goroutine that reads may ask. It costs a
// system call: ask for those who come anew, not for each datagram.
func (q *UDPQueue) IsCrowded() bool {
	return q.raw.Control(q.look) == nil && q.crowded
}

// LostBy returns how many datagrams the receive queue of conn had no room for so far, if that is known. The number wraps around.
func LostBy(conn *net.UDPConn) (n uint32, ok bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, false
	}
	if err := raw.Control(func(fd uintptr) { n, ok = Lost(int(fd)) }); err != nil {
		return 0, false
	}
	return n, ok
}

// UnreadBy is [Unread] of a connection.
func UnreadBy(conn *net.UDPConn) (n int) {
	raw, err := conn.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { n = Unread(int(fd)) }) // fails only when conn is closed
	}
	return n
}
