package rotation

import (
	"iter"
	"net/netip"
	"slices"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// Standings yields the endpoints that are allowed, and their standing over a protocol, for clients at an address or, with the zero Addr, at the node: of
// several tiers those of the first one whose checks do not all fail. At the node that tier may differ by the family of the client: it yields both.
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
		inUse := [2][]*Endpoint{set.seenBy(kindOf(at, registry.NoTerms)).inUse(protocol)}
		if !at.IsValid() {
			inUse[1] = set.seenBy(overIPv6).inUse(protocol)
		}
		for _, e := range set.endpoints {
			wanted := drained && e.weight.Load() == 0
			for i, left := range inUse {
				if len(left) > 0 && left[0] == e { // a tier has its endpoints in the order of the set
					inUse[i], wanted = left[1:], true
				}
			}
			if wanted && !e.forbidden && !yield(e.Addr, e.standing(protocol, set)) {
				return
			}
		}
	}
}

// inUse returns the endpoints of the first tier whose checks do not all fail; if those of every tier do, of the first.
func (v *view) inUse(protocol registry.Protocol) []*Endpoint {
	if len(v.tiers) == 0 {
		return nil
	}
	i := slices.IndexFunc(v.tiers, func(t *tier) bool {
		return slices.ContainsFunc(t.endpoints, func(e *Endpoint) bool { check, _ := e.checkState(protocol); return !e.isExcluded() && !check.Fails })
	})
	return v.tiers[max(0, i)].endpoints
}

// standing returns the standing of an endpoint of a set over a protocol.
func (e *Endpoint) standing(protocol registry.Protocol, set *endpointSet) health.Standing {
	switch check, isChecked := e.checkState(protocol); {
	case check.Fails:
		return health.Failing
	case !isChecked:
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
