// Package faultproxy is a TCP proxy that breaks connections in the ways in which networks do.
//
//	client ──▶ Proxy ──▶ target
//	        ◀─        ◀─
//
// Either both ends learn of the fault ([Proxy.Reset], [Proxy.Refuse]), or neither does: a [Mode] forwards, discards or holds the
// bytes of each direction.
//
// The proxy acknowledges what it receives, even if it discards it. So it behaves like a middlebox that has lost its state, or like
// a peer whose kernel works and whose process does not read: the client sees its bytes accepted, and gets no answer. Where packets
// themselves are lost nothing is acknowledged, and the client's kernel retransmits. Package cluster has that fault.
//
// Bytes that were discarded are gone, and what follows them makes no sense to either end. So a connection that has lost bytes stays
// silent until one end gives it up. [Proxy.Restore] is for new connections.
package faultproxy
