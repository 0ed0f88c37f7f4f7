package sockopt

import "net/netip"

// A LocalAddr is the address of ours that a client spoke to, and the only one that its replies may
// leave from: a client drops what comes from an address it did not ask (D45). A socket that is
// bound to all addresses learns it from the control messages that come with each datagram. The
// zero value means that it is not known.
type LocalAddr struct {
	Addr      netip.Addr // unmapped, without zone
	Interface uint32     // the index of the interface it belongs to; 0 except for an IPv6 link-local address, and for :: where the client spoke to a multicast address
}
