// Package sockopt hides the differences between operating systems: socket options, what the kernel reports with a datagram or about a TCP
// connection, and the meaning of errors. Where a system lacks one of these, the function does nothing, and its comment says so.
package sockopt
