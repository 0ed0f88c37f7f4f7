package kernel

import (
	"iter"
	"net/netip"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/removal"
	"kubeproxy/registry"
	"kubeproxy/registry/patroni"
)

// maxEndpoints is how many endpoints of a port the kernel gets at most. All of them may change in one transaction, whose messages have to
// fit into the buffer of the socket.
const maxEndpoints = 512

// A Node is what [Judge] knows of the node.
type Node struct {
	bind     netip.Addr // where it has its ports; unspecified: at all addresses
	Forwards [2]error   // why the node does not forward packets of IPv4, of IPv6; nil: it does

	Algorithm func(registry.Balance) registry.Balance // of a service whose record names this one; as rotation.Rules.Algorithm says
	Refuse    func(registry.Protocol, netip.AddrPort) error
	IsLocal   func(netip.Addr) bool // whether the node takes what is sent to an address, also where no interface has that
	Bound     [2]bool               // a flag limits or reads the connections of each service, by protocol
	OnRemoval removal.Policy        // of TCP connections, where the record does not say
}

// Judge returns the endpoints that the kernel may give to clients of a port, and Carried; or none, and why not. It changes nothing.
func (n *Node) Judge(id registry.ListenerID, terms *registry.Terms, endpoints iter.Seq2[registry.Addr, health.Standing]) ([]netip.AddrPort, Reason) {
	protocol, at := id.Protocol, id.Addr
	if !at.IsValid() {
		at = n.bind
	}
	switch {
	case id.Addr.IsLoopback(), id.Addr.IsLinkLocalUnicast():
		return nil, Addresses
	case !n.keeps(terms):
		return nil, Terms
	case n.Bound[protocol], protocol == registry.TCP && n.OnRemoval.Close && terms.Removal.Rule == registry.RemovalUnsaid:
		return nil, ByFlag
	}
	var usable []netip.AddrPort
	reason := Carried
	for addr, standing := range endpoints {
		if reason = n.examine(protocol, addr, standing); reason != Carried {
			return nil, reason
		}
		if standing == health.Failing {
			continue
		}
		if usable = append(usable, netip.AddrPortFrom(addr.IP.Addr().Unmap(), addr.IP.Port())); len(usable) > maxEndpoints {
			return nil, TooMany
		}
		if usable[0].Addr().Is4() != usable[len(usable)-1].Addr().Is4() {
			return nil, Families
		}
	}
	switch {
	case len(usable) == 0:
		return nil, NoEndpoints
	case !at.IsUnspecified() && at.Is4() != usable[0].Addr().Is4():
		return nil, Families
	}
	if n.Forwards[familyOf(usable)] != nil {
		return nil, NotForwarded
	}
	return usable, Carried
}

// Stay returns the endpoints of a port to which UDP flows go on that the kernel carries already, of those that has says may have some. Nothing
// speaks against such an endpoint, or at worst some checks were not answered, whatever keeps the kernel from carrying new flows: to delete
// a flow costs the replies that are on their way.
func (n *Node) Stay(terms *registry.Terms, endpoints iter.Seq2[registry.Addr, health.Standing], has func(netip.AddrPort) bool) (stay []netip.AddrPort) {
	if !n.keeps(terms) || n.Bound[registry.UDP] {
		return nil
	}
	for addr, standing := range endpoints {
		switch standing {
		case health.Awaited, health.Sound, health.Overdue, health.Doubtful, health.Weighted, health.Overridden:
			at := netip.AddrPortFrom(addr.IP.Addr().Unmap(), addr.IP.Port())
			if n.examine(registry.UDP, addr, standing) == Address || n.Forwards[familyOf([]netip.AddrPort{at})] != nil || !has(at) {
				continue
			}
			if stay = append(stay, at); len(stay) > 2*maxEndpoints {
				return nil // the kernel has hardly had so many: those in use, and drained ones
			}
		}
	}
	return stay
}

// keeps reports whether the kernel can do what a service wants. A term that this function does not know is one that the kernel cannot keep.
func (n *Node) keeps(terms *registry.Terms) bool {
	if n.Algorithm(terms.Balance) != registry.RoundRobin {
		return false
	}
	others := *terms
	others.Balance, others.Checks = registry.BalanceUnsaid, registry.Check{}
	others.LetLapse, others.HolderKey, others.Patroni = false, "", patroni.Terms{} // which decide what is in force
	others.Distribution = registry.Anywhere                                        // the endpoints are those of one tier
	if others.Limits.PerClient == registry.NoLimit {
		others.Limits.PerClient = 0
	}
	if others.Timeouts.Idle == registry.NoLimit {
		others.Timeouts.Idle = 0
	}
	if others.Removal.Rule == registry.RemovalDrain {
		others.Removal = registry.Removal{}
	}
	return others.Equal(&registry.Terms{})
}

// examine returns why an endpoint keeps the kernel from carrying its port; Carried: it does not. What the kernel sends to the node itself passes no
// postrouting, so an endpoint there would see clients' own addresses, and the node's firewall would meet clients at the endpoint's port.
func (n *Node) examine(protocol registry.Protocol, addr registry.Addr, standing health.Standing) Reason {
	ip := addr.IP.Addr().Unmap()
	switch {
	case addr.Host != "" || ip.IsLoopback() || ip.IsLinkLocalUnicast() || n.IsLocal(ip) || n.Refuse(protocol, netip.AddrPortFrom(ip, addr.IP.Port())) != nil:
		return Address
	case standing == health.Weighted:
		return Weights
	case standing == health.Overridden:
		return Overridden
	case standing == health.Unchecked:
		return NotChecked
	case standing == health.Awaited:
		return NotCheckedYet
	case standing == health.Overdue:
		return Overdue
	case standing == health.Doubtful || standing == health.Unsettled:
		return InDoubt
	}
	return Carried
}

// familyOf returns 0 if the endpoints are of IPv4, and 1 if they are of IPv6.
func familyOf(endpoints []netip.AddrPort) int { return familyOfAddr(endpoints[0].Addr()) }

func familyOfAddr(addr netip.Addr) int {
	if addr.Is4() {
		return 0
	}
	return 1
}
