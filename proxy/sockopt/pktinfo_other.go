//go:build !linux

package sockopt

import "net"

// Where we don't know how to ask which address a datagram was sent to, the kernel chooses the
// address that replies leave from. It is the right one unless this machine has several.

const ReceiptSpace = 0

func AskReceipts(*net.UDPConn) error { return nil }

func ParseReceipt([]byte) Receipt { return Receipt{} }

func ControlFrom(LocalAddr) []byte { return nil }
