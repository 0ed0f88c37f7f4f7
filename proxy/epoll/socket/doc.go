// Package socket makes the system calls of event loops, on bare descriptors.
//
// All descriptors are in non-blocking mode, so no call waits, and none tells the Go scheduler. Package net opens listening sockets,
// and this package keeps only their descriptors.
package socket
