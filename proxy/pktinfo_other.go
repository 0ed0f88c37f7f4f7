//go:build !linux

package proxy

import "net"

// Where we don't know how to ask which address a datagram was sent to, the kernel chooses the
// address that replies leave from. It is the right one unless this machine has several.

const receiptSpace = 0

func askReceipts(*net.UDPConn) error { return nil }

func parseReceipt([]byte) receipt { return receipt{} }

func controlFrom(localAddr) []byte { return nil }
