package registry

import "fmt"

// A Protocol is a transport that the proxy can carry. The zero value is TCP, as a record that
// names none means (D15).
type Protocol uint8

// The protocols that v0.4 served.
const (
	TCP Protocol = iota
	UDP
)

// String gives the protocol as package net and the logs write it.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	}
	return fmt.Sprintf("protocol(%d)", uint8(p))
}
