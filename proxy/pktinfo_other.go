//go:build !linux

package proxy

import "net"

// Where we don't know how to ask which address a datagram was sent to, the kernel chooses the
// address that replies leave from. It is the right one unless this machine has several.

const pktinfoSpace = 0

func askLocal(*net.UDPConn) error { return nil }

func parseLocal([]byte) localAddr { return localAddr{} }

func controlFrom(localAddr) []byte { return nil }
