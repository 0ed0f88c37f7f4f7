package proxy

import (
	"net"
	"net/netip"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/ports"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// OwnListeners tells which endpoints lead back to the listeners of a proxier, by the proxier's own
// rule, to a caller that runs none. Make it with [NewOwnListeners]. It may be asked by several
// goroutines at once.
type OwnListeners struct{ own *admit.OwnPorts }

// NewOwnListeners is for a proxier on this machine whose listeners bind to this address. Of those it knows
// none yet, but its operators' ports are ([Config].ReservedPorts).
func NewOwnListeners(bind netip.Addr, operators []uint16) OwnListeners {
	own := admit.NewOwnPorts(bind)
	own.Reserve(operators)
	return OwnListeners{own}
}

// Add says what the proxier listens on.
func (o OwnListeners) Add(id registry.ListenerID) { o.own.Add(id) }

// Contains reports whether traffic to addr would arrive at one of these listeners.
func (o OwnListeners) Contains(protocol registry.Protocol, addr netip.AddrPort) bool {
	return o.own.Contains(protocol, addr)
}

// HasAddress reports whether a proxier on this machine could listen at an address.
func HasAddress(addr netip.Addr) bool {
	l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err == nil {
		l.Close()
	}
	return err == nil
}

// Allows reports whether such a proxier may dial an address for an endpoint.
func (c Config) Allows(endpoint netip.Addr) bool {
	return len(c.AllowedEndpoints) == 0 || registry.Within(c.AllowedEndpoints, endpoint)
}

// DescriptorRoom returns how many descriptors a process that is started like this one may have, how many
// of them a proxier would let listeners and clients have together, and how many of these listeners.
func DescriptorRoom() (limit, room, listeners int) {
	b := admit.NewBudget(sockopt.DescriptorLimit())
	return b.Limit, b.Clients, b.Most
}

// DescriptorsFor returns the lowest descriptor limit under which a proxier would open so many listeners.
func DescriptorsFor(listeners int) int { return admit.DescriptorsFor(listeners) }

// LocalPorts returns the range that this machine takes the local ports of connections from, if it says so.
// A service's port in it may be in use as one of those when its listener is to be opened.
func LocalPorts() (first, last uint16, ok bool) { return ports.LocalPorts() }
