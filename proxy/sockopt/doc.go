// Package sockopt is what differs between operating systems: socket options, what the kernel says beside a datagram or of a TCP
// connection, and which errors mean what. Where a system has no such thing, the function for it does nothing, and says so.
package sockopt
