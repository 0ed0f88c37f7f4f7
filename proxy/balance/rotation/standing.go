package rotation

import (
	"iter"
	"net/netip"
	"slices"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// Standings yields the endpoints that are allowed, in the order of the record, and their standing over a protocol, for clients at an address or, with the zero
// Addr, at the node: of several tiers those of the first one whose checks do not all fail. For the node, a set with endpoints of both families yields all.
func (r *Rotation) Standings(protocol registry.Protocol, at netip.Addr) iter.Seq2[registry.Addr, health.Standing] {
	return func(yield func(registry.Addr, health.Standing) bool) {
		set := r.set.Load()
		endpoints := set.endpoints
		if v := set.seenBy(kindOf(at, new(registry.Terms))); len(v.tiers) > 1 && (at.IsValid() || set.tellApart&overIPv6 == 0) {
			endpoints = v.inUse(protocol).endpoints
		} else {
			for addr := range set.addrs.All() { // of a set that sleeps: it is not checked
				if !yield(addr, health.Unchecked) {
					return
				}
			}
		}
		for _, e := range endpoints {
			if !e.forbidden && !yield(e.Addr, e.standing(protocol, set)) {
				return
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

// inUse returns the first tier whose endpoints do not all fail their checks; if all do, the first.
func (v *view) inUse(protocol registry.Protocol) *tier {
	for _, t := range v.tiers {
		if slices.ContainsFunc(t.endpoints, func(e *Endpoint) bool { return !e.isExcluded() && !e.checkState(protocol).Fails }) {
			return t
		}
	}
	return v.tiers[0]
}
