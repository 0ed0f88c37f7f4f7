//go:build !linux

package sockopt

import "net"

// Where we don't know how to ask which address a datagram was sent to, the kernel chooses the
// address that replies leave from. It is the right one unless this machine has several.

// ReceiptSpace is no room: nothing comes along with a datagram.
const ReceiptSpace = 0

// AskReceipts asks for nothing.
func AskReceipts(*net.UDPConn) error { return nil }

// ParseReceipt returns that nothing is known.
func ParseReceipt([]byte) LocalAddr { return LocalAddr{} }

// ControlFrom returns no control message.
func ControlFrom(LocalAddr) []byte { return nil }
