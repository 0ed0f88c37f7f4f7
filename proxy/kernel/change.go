package kernel

import (
	"net/netip"

	"kubeproxy/registry"
)

// A change is what becomes of one port in the table. The order of the endpoints is that of their numbers.
type change struct {
	id                registry.ListenerID
	before, after     []netip.AddrPort // none: the kernel does not carry the port
	shielded, shields bool             // before and after: the kernel leaves clients of an address to the listener there, and not to the same port of the node
}

// fill returns the endpoints of wanted in the order that changes fewest numbers: an endpoint that stays keeps its number if it is below the
// new count, and the others fill the gaps.
func fill(before, wanted []netip.AddrPort) []netip.AddrPort {
	after := make([]netip.AddrPort, len(wanted))
	place := make(map[netip.AddrPort]int, len(before))
	for i, e := range before {
		if i < len(wanted) {
			place[e] = i
		}
	}
	var others []netip.AddrPort
	for _, e := range wanted {
		if i, ok := place[e]; ok && !after[i].IsValid() {
			after[i] = e
		} else {
			others = append(others, e)
		}
	}
	for i := range after {
		if !after[i].IsValid() {
			after[i], others = others[0], others[1:]
		}
	}
	return after
}

// A numbered endpoint is an element of a map of endpoints.
type numbered struct {
	number int
	addr   netip.AddrPort
}

// differences returns the elements of the maps of endpoints that have to go and to come.
func (c *change) differences() (gone, come []numbered) {
	for i := range max(len(c.before), len(c.after)) {
		had, has := i < len(c.before), i < len(c.after)
		if had && has && c.before[i] == c.after[i] {
			continue
		}
		if had {
			gone = append(gone, numbered{i, c.before[i]})
		}
		if has {
			come = append(come, numbered{i, c.after[i]})
		}
	}
	return gone, come
}

// senders returns the clients of the port to whom userspace alone may answer, which have to go and to come.
func (c *change) senders() (gone, come []netip.AddrPort) {
	return exchanged(sendersOf(c.id, c.before), sendersOf(c.id, c.after))
}

// members returns the endpoints that leave, whatever their number, and those that come.
func (c *change) members() (gone, come []netip.AddrPort) {
	had, has := make(map[netip.AddrPort]bool, len(c.before)), make(map[netip.AddrPort]bool, len(c.after))
	for _, e := range c.before {
		had[e] = true
	}
	for _, e := range c.after {
		has[e] = true
	}
	return exchanged(had, has)
}

func exchanged(had, has map[netip.AddrPort]bool) (gone, come []netip.AddrPort) {
	for s := range had {
		if !has[s] {
			gone = append(gone, s)
		}
	}
	for s := range has {
		if !had[s] {
			come = append(come, s)
		}
	}
	return gone, come
}

// sendersOf returns the UDP clients that [kubeproxy/proxy/admit.SessionKey.Loops] keeps from an endpoint. Port 0 stands for all ports of an address, on which an
// endpoint has the port of the service: it may be another node's listener, which sends from any port.
func sendersOf(id registry.ListenerID, endpoints []netip.AddrPort) map[netip.AddrPort]bool {
	if id.Protocol != registry.UDP {
		return nil
	}
	senders := make(map[netip.AddrPort]bool, len(endpoints))
	for _, e := range endpoints {
		if e.Port() == id.Number {
			e = netip.AddrPortFrom(e.Addr(), 0)
		}
		senders[e] = true
	}
	return senders
}

// recounts reports whether the element of the port in the map of ports changes.
func (c *change) recounts() bool {
	return len(c.before) != len(c.after) || len(c.before) > 0 && familyOf(c.before) != familyOf(c.after) || c.shielded != c.shields
}
