package proxy

import (
	"net"
	"net/netip"

	"kubeproxy/registry"
)

// triedPorts finds out which ports are in use by opening each for a moment.
func triedPorts(bind netip.Addr, ids []portID) map[portID]bool {
	inUse := make(map[portID]bool)
	for _, id := range ids {
		addr := netip.AddrPortFrom(bind, id.number).String()
		switch id.protocol {
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
