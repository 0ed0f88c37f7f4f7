package rotation

import (
	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// condition returns what new clients over a protocol are given of a set; local: of its endpoints on the node. An endpoint that gets none does not count.
func (r *Rotation) condition(set *endpointSet, protocol registry.Protocol, local bool) health.Condition {
	local = local && r.rules.Node.Name != ""
	var met health.Census
	for _, e := range set.endpoints {
		if !e.isExcluded() && !isElsewhere(e.place(), local) {
			met.Add(e.healthOf(protocol), e.isFull())
		}
	}
	i := 0
	for addr := range set.addrs.All() { // of a set that sleeps; most often only the first
		if r.rules.Allows(addr) && !isElsewhere(set.places.At(i), local) {
			met.Add(nil, false)
			break
		}
		i++
	}
	switch {
	case set.len() == 0:
		return health.NoEndpoints
	case set.isDrained():
		return health.ZeroWeight
	case met.IsEmpty() && local: // as TurnsAway says
		return health.NoLocal
	}
	return met.Condition(r.terms.Load().Failure.Refuse)
}

// isElsewhere reports whether an endpoint at a place gets no client that is given those on the node only.
func isElsewhere(at registry.Place, local bool) bool { return local && at&registry.OnNode == 0 }
