//go:build !linux

package sockopt

import (
	"net"
	"time"
)

// A Delivery is what the kernel tells about the way from us to a peer: see tcpinfo_linux.go.
type Delivery struct {
	Acked         uint64
	Pending, Dead bool
	Unanswered    int
	Silent        time.Duration
}

// StateOfConn knows nothing.
func StateOfConn(*net.TCPConn) (state string, idle time.Duration) { return "", -1 }

// Inspect knows nothing: what was just written may then be Lost when it is followed by a reset, and
// a slow reader of a connection of which one direction has ended must read a buffer in HalfClosedTimeout.
func Inspect(*net.TCPConn) Delivery { return Delivery{} }
