//go:build !linux

package proxy

import "net"

// A udpQueue, where we don't know how to ask the kernel, is never known to be filling.
type udpQueue struct{}

func (q *udpQueue) init(*net.UDPConn) error { return nil }

func (q *udpQueue) filling() bool { return false }
