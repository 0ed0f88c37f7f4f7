package rotation

import (
	"slices"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// How operators override the weights of records. A rotation with overrides does not sleep.

// Override has endpoints have these weights in place of those of the record, until it is called again, or the endpoints are replaced. The caller
// must not edit weights any more.
func (r *Rotation) Override(weights map[registry.Addr]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if weights == nil && r.set.Load().overrides == nil {
		return
	}
	if set := r.awakeLocked(); set.len() > 0 {
		r.remakeLocked(set, weights)
		r.changed()
	}
}

// weightsInForce returns the weight of each address; nil if all are 1.
func weightsInForce(addrs registry.Addrs, record registry.Weights, overrides map[registry.Addr]int) []int {
	weights := record.Of(addrs)
	if len(overrides) == 0 {
		return weights
	}
	if weights == nil {
		weights = slices.Repeat([]int{1}, addrs.Len())
	}
	i := 0
	for addr := range addrs.All() {
		if w, ok := overrides[addr]; ok {
			weights[i] = w
		}
		i++
	}
	return weights
}

// HasOther reports whether new clients that could be given one of these endpoints would still be given one that answers if none of these got any.
func (r *Rotation) HasOther(without map[registry.Addr]bool) bool {
	for protocol, local := range r.offeredTo().Each() {
		taken, left := false, false
		for _, e := range r.Endpoints() {
			if isElsewhere(e.place(), local && r.rules.Node.Name != "") {
				continue // these clients are never given it
			}
			refuses, failsCheck := e.failures(health.ClientsOf(protocol, local))
			taken, left = taken || without[e.Addr], left || !without[e.Addr] && !e.isExcluded() && !refuses && !failsCheck
		}
		if taken && !left {
			return false
		}
	}
	return true
}
