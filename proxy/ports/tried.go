package ports

import (
	"net"
	"net/netip"
	"slices"

	"kubeproxy/registry"
)

// tried finds out which ports are in use by opening each for a moment. A port that we have open at another address is taken to be free: who
// opens it finds out.
func tried(bind netip.Addr, ids, own []registry.ListenerID) map[registry.ListenerID]bool {
	inUse := make(map[registry.ListenerID]bool)
	for _, id := range ids {
		if slices.ContainsFunc(own, func(o registry.ListenerID) bool { return o.AtNode() == id.AtNode() }) {
			continue
		}
		at := bind
		if id.Addr.IsValid() {
			at = id.Addr
		}
		addr := netip.AddrPortFrom(at, id.Number).String()
		switch id.Protocol {
		case registry.TCP:
			l, err := net.Listen("tcp", addr)
			if err == nil {
				l.Close()
			}
			inUse[id] = err != nil
		case registry.UDP:
			c, err := net.ListenPacket("udp", addr)
			if err == nil {
				c.Close()
			}
			inUse[id] = err != nil
		}
	}
	return inUse
}
