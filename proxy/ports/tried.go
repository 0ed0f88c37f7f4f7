package ports

import (
	"net"
	"net/netip"

	"kubeproxy/registry"
)

// tried finds out which ports are in use by opening each for a moment.
func tried(bind netip.Addr, ids []registry.NodePort) map[registry.NodePort]bool {
	inUse := make(map[registry.NodePort]bool)
	for _, id := range ids {
		addr := netip.AddrPortFrom(bind, id.Number).String()
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
