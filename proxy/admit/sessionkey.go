package admit

import (
	"errors"
	"net/netip"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// A SessionKey tells sessions apart. A client that speaks to two of our addresses has two: each
// expects its replies from another one.
type SessionKey struct {
	Client netip.AddrPort // unmapped: an IPv4 client is the same on a socket of either family
	Local  sockopt.LocalAddr
}

// Loops reports whether datagrams of the client would go round for ever if they were sent to an endpoint at
// to, by a listener on port:
//
//   - The endpoint is the client, which speaks from its service socket, or whose address was forged. It would be
//     sent what it sent, and each of its answers after that.
//   - The endpoint has the client's address and the listener's port: it may be another node's listener for
//     the same service, which sent the datagram here. Another program of the client's machine may have that
//     port instead. The two cannot be told apart, so such a client is given another endpoint.
func (k SessionKey) Loops(to netip.AddrPort, port uint16) bool {
	return to.Addr().Unmap().WithZone("") == k.Client.Addr().WithZone("") && (to.Port() == k.Client.Port() || to.Port() == port)
}

// OwnsClient reports whether the address of a UDP client is that of one of our own listeners: the client was
// forged, and each answer would be a datagram from one listener to another, for ever.
func (o *OwnPorts) OwnsClient(k SessionKey) bool {
	return o.Contains(registry.UDP, k.Client) || o.Reached(registry.UDP, netip.AddrPortFrom(k.Local.Addr, 0), k.Client)
}

// ErrLoop is what an endpoint gets that would send a client's datagrams back to this proxy.
var ErrLoop = errors.New("datagrams of this client would go round in a loop")
