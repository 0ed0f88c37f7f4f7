// Package proxyproto writes and reads the header of the PROXY protocol, by which a proxy says who its client is: version 1, a line of
// text, and version 2, which is binary and has a form for datagrams. The protocol is HAProxy's:
// https://github.com/haproxy/haproxy/blob/master/doc/proxy-protocol.txt.
//
// The functions do no I/O. Any goroutine may call them.
package proxyproto
