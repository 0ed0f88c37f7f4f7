package rotation

import (
	"iter"
	"net/netip"
	"slices"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// Standings yields the endpoints that are allowed, and their standing over a protocol, for clients at an address or, with the zero Addr, at the node: of
// several tiers those of the first one whose checks do not all fail. For the node, a set with endpoints of both families yields all.
func (r *Rotation) Standings(protocol registry.Protocol, at netip.Addr) iter.Seq2[registry.Addr, health.Standing] {
	return r.standings(protocol, at, false)
}

// Keeping yields what Standings does, and the endpoints of other tiers that have weight 0: these get no new clients, and keep those that they have.
func (r *Rotation) Keeping(protocol registry.Protocol, at netip.Addr) iter.Seq2[registry.Addr, health.Standing] {
	return r.standings(protocol, at, true)
}

func (r *Rotation) standings(protocol registry.Protocol, at netip.Addr, drained bool) iter.Seq2[registry.Addr, health.Standing] {
	return func(yield func(registry.Addr, health.Standing) bool) {
		set := r.set.Load()
		for addr := range set.addrs.All() { // of a set that sleeps: it is not checked
			if !yield(addr, health.Unchecked) {
				return
			}
		}
		all := !at.IsValid() && set.tellApart&overIPv6 != 0
		tiers := set.seenBy(kindOf(at, registry.NoTerms)).tiers
		inUse := max(0, slices.IndexFunc(tiers, func(t *tier) bool { // if all checks fail, the first
			return slices.ContainsFunc(t.endpoints, func(e *Endpoint) bool { return !e.isExcluded() && !e.checkState(protocol).Fails })
		}))
		for i, t := range tiers {
			for _, e := range t.endpoints {
				if (all || i == inUse || drained && e.weight.Load() == 0) && !e.forbidden && !yield(e.Addr, e.standing(protocol, set)) {
					return
				}
			}
		}
	}
}

// standing returns the standing of an endpoint of a set over a protocol.
func (e *Endpoint) standing(protocol registry.Protocol, set *endpointSet) health.Standing {
	switch check := e.checkState(protocol); {
	case check.Fails:
		return health.Failing
	case !e.isChecked(protocol):
		return health.Unchecked
	case !check.Known:
		return health.Awaited
	case check.Refused || !e.healthOf(protocol).IsSettled():
		return health.Unsettled
	case e.weight.Load() != 1:
		if _, by := set.overrides[e.Addr]; by {
			return health.Overridden
		}
		return health.Weighted
	case check.Err != "":
		return health.Doubtful
	case check.Overdue:
		return health.Overdue
	}
	return health.Sound
}
