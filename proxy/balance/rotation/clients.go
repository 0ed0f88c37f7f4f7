package rotation

import (
	"cmp"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// offeredTo returns the clients of the ports that have the endpoints. While there is no such port, those over both protocols could come.
func (r *Rotation) offeredTo() health.Clients {
	return cmp.Or(health.Clients(r.offered.Load()), health.ClientsOf(registry.TCP, false)|health.ClientsOf(registry.UDP, false))
}

// offerLocked notes which clients there are from now on. Over a protocol that comes or goes, what is known of endpoints is forgotten: while it is
// not offered, no client and no check corrects it.
func (r *Rotation) offerLocked(to health.Clients) {
	before := health.Clients(r.offered.Swap(uint32(to)))
	for protocol := range registry.UDP + 1 {
		if (before.Over(protocol) == 0) == (to.Over(protocol) == 0) {
			continue
		}
		for _, e := range r.set.Load().endpoints {
			if h := e.healthOf(protocol); h != nil {
				h.Forget()
				e.resort(protocol)
			}
		}
	}
}
