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
	order := func(family []netip.AddrPort) []netip.AddrPort {
		slices.SortFunc(family, func(a, b netip.AddrPort) int {
			return cmp.Compare(positions.Rank(c.client, a.Addr()), positions.Rank(c.client, b.Addr()))
		})
		return family
	}
	if c.balance != registry.SourceAddress && c.sticky == nil {
		turn := e.nextTurn(c.protocol)
		order = func(family []netip.AddrPort) []netip.AddrPort { return positions.Rotated(family, turn) }
	}
	return positions.Arrange(addrs, order)[:min(len(addrs), maxAddrs)]
}

// nextTurn counts the clients that were given an address of the endpoint's name.
func (e *Endpoint) nextTurn(protocol registry.Protocol) uint32 {
	turns := &e.stats().turns[protocol]
	if e.Rotation.rules.randomStart && turns.Load() == 0 {
		turns.CompareAndSwap(0, rand.Uint32()) // as of endpoints: see NewRules
	}
	return turns.Add(1) - 1
}
