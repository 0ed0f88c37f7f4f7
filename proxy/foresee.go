package proxy

import (
	"net/netip"

	"kubeproxy/registry"
)

// OwnListeners tells which endpoints lead back to the listeners of a proxier, by the proxier's own
// rule, to somebody who runs none. Make it with [NewOwnListeners]. It may be asked by several
// goroutines at once.
type OwnListeners struct{ own *ownPorts }

// NewOwnListeners is for a proxier on this machine whose listeners bind to this address. Of those it knows
// none yet, but its operators' ports are ([Config].ReservedPorts).
func NewOwnListeners(bind netip.Addr, operators []uint16) OwnListeners {
	own := newOwnPorts(bind)
	own.reserve(operators)
	return OwnListeners{own}
}

// Add says that the proxier listens on a port.
func (o OwnListeners) Add(protocol registry.Protocol, port uint16) { o.own.add(portID{protocol, port}) }

// Contains tells whether traffic to addr would arrive at one of these listeners.
func (o OwnListeners) Contains(protocol registry.Protocol, addr netip.AddrPort) bool {
	return o.own.contains(protocol, addr)
}

// Refusal tells why a proxier of this configuration lets no service have a port; nil when they may.
func (c Config) Refusal(protocol registry.Protocol, port uint16) error {
	return (&Proxier{cfg: c}).refusal(portID{protocol, port})
}

// Allows tells whether such a proxier may dial an address for an endpoint.
func (c Config) Allows(endpoint netip.Addr) bool {
	return len(c.AllowedEndpoints) == 0 || contains(c.AllowedEndpoints, endpoint)
}

// DescriptorRoom returns how many descriptors a process that is started like this one may have, and
// how many of them a proxier would let listeners and clients have together.
func DescriptorRoom() (limit, room int) {
	b := newBudget(descriptorLimit())
	return b.limit, b.clients
}
