package rotation

import (
	"iter"
	"net/netip"
	"slices"

	"kubeproxy/registry"
)

// A Standing says whether clients can be given an endpoint when no failed attempt of theirs is seen, and none is made again elsewhere.
type Standing uint8

// The standings of an endpoint over one protocol.
const (
	Unchecked Standing = iota // it is not checked
	Awaited                   // no check of it has ended
	Sound                     // its last check passed, and it gets its whole share of clients
	Overdue                   // its last check passed, and the next ones have had no result for too long
	Doubtful                  // its last check was not answered as it has to be
	Unsettled                 // its last check was refused, the attempt of a client failed, or it warms up
	Failing                   // its checks fail, so clients are given others
	Weighted                  // nothing worse is known of it, and it gets another share of clients than one of weight 1
)

// Standings yields the endpoints that are allowed, in the order of the record, and their standing over a protocol, for clients at an address or, with the zero
// Addr, at the node: of several tiers those of the first one whose checks do not all fail. For the node, a set with endpoints of both families yields all.
func (r *Rotation) Standings(protocol registry.Protocol, at netip.Addr) iter.Seq2[registry.Addr, Standing] {
	return func(yield func(registry.Addr, Standing) bool) {
		set := r.set.Load()
		if v := set.seenBy(kindOf(at, new(registry.Terms))); len(v.tiers) > 1 && (at.IsValid() || set.tellApart&overIPv6 == 0) {
			for _, e := range v.inUse(protocol).endpoints {
				if !e.forbidden && !yield(e.Addr, e.standing(protocol)) {
					return
				}
			}
			return
		}
		for addr := range set.addrs.All() { // of a set that sleeps: it is not checked
			if !yield(addr, Unchecked) {
				return
			}
		}
		for _, e := range set.endpoints {
			if !e.forbidden && !yield(e.Addr, e.standing(protocol)) {
				return
			}
		}
	}
}

// standing returns the standing of the endpoint over a protocol.
func (e *Endpoint) standing(protocol registry.Protocol) Standing {
	switch check := e.checkState(protocol); {
	case check.Fails:
		return Failing
	case !e.isChecked(protocol):
		return Unchecked
	case !check.Known:
		return Awaited
	case check.Refused || !e.healthOf(protocol).IsSettled():
		return Unsettled
	case e.weight.Load() != 1:
		return Weighted
	case check.Err != "":
		return Doubtful
	case check.Overdue:
		return Overdue
	}
	return Sound
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
