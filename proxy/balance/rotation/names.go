package rotation

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"slices"

	"kubeproxy/proxy/balance/positions"
	"kubeproxy/registry"
)

// maxAddrs is how many addresses of one name a client tries.
const maxAddrs = 8

// Arrange returns the addresses of the name of an endpoint in the order in which the client tries them: those of the preferred family,
// with which addrs begins, and those of the other one by turns, as RFC 8305 has it. Within a family each client begins with the next
// address; where the client's address decides, or the client is to have the same endpoint again, it begins with the same one on every node.
func (c *Choice) Arrange(e *Endpoint, addrs []netip.AddrPort) []netip.AddrPort {
	if len(addrs) < 2 {
		return addrs
	}
	preferred, other := families(slices.Clone(addrs))
	if c.balance == registry.SourceAddress || c.sticky != nil {
		for _, family := range [][]netip.AddrPort{preferred, other} {
			slices.SortFunc(family, func(a, b netip.AddrPort) int {
				return cmp.Compare(positions.Rank(c.client, a.Addr()), positions.Rank(c.client, b.Addr()))
			})
		}
	} else {
		turn := e.nextTurn(c.protocol)
		preferred, other = rotated(preferred, turn), rotated(other, turn)
	}
	order := addrs[:0:0]
	for i := range max(len(preferred), len(other)) {
		if i < len(preferred) {
			order = append(order, preferred[i])
		}
		if i < len(other) {
			order = append(order, other[i])
		}
	}
	return order[:min(len(order), maxAddrs)]
}

// families divides addresses where their family changes.
func families(addrs []netip.AddrPort) (preferred, other []netip.AddrPort) {
	first := addrs[0].Addr().Is4()
	n := slices.IndexFunc(addrs, func(a netip.AddrPort) bool { return a.Addr().Is4() != first })
	if n < 0 {
		n = len(addrs)
	}
	return addrs[:n], addrs[n:]
}

// rotated returns addresses in their order, from the one whose turn it is.
func rotated(addrs []netip.AddrPort, turn uint32) []netip.AddrPort {
	if len(addrs) == 0 {
		return nil
	}
	n := int(turn % uint32(len(addrs)))
	return slices.Concat(addrs[n:], addrs[:n])
}

// nextTurn counts the clients that were given an address of the endpoint's name.
func (e *Endpoint) nextTurn(protocol registry.Protocol) uint32 {
	turns := &e.stats().turns[protocol]
	if e.Rotation.rules.randomStart && turns.Load() == 0 {
		turns.CompareAndSwap(0, rand.Uint32()) // as of endpoints: see NewRules
	}
	return turns.Add(1) - 1
}
