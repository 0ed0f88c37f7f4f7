package proxy

import (
	"net/netip"

	"kubeproxy/registry"
)

// OwnListeners tells which endpoints lead back to the listeners of a proxier, by the proxier's own
// rule, to somebody who runs none. Make it with [NewOwnListeners]. It may be asked by several
// goroutines at once.
type OwnListeners struct{ own *ownPorts }

// NewOwnListeners is for a proxier on this machine whose listeners bind to this address, of which it
// does not know any yet.
func NewOwnListeners(bind netip.Addr) OwnListeners { return OwnListeners{newOwnPorts(bind)} }

// Add says that the proxier listens on a port.
func (o OwnListeners) Add(protocol registry.Protocol, port uint16) { o.own.add(portID{protocol, port}) }

// Contains tells whether traffic to addr would arrive at one of these listeners.
func (o OwnListeners) Contains(protocol registry.Protocol, addr netip.AddrPort) bool {
	return o.own.contains(protocol, addr)
}

// DescriptorRoom returns how many descriptors a process that is started like this one may have, and
// how many of them a proxier would let listeners and clients have together.
func DescriptorRoom() (limit, room int) {
	b := newBudget(descriptorLimit())
	return b.limit, b.clients
}
