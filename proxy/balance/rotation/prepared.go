package rotation

import (
	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// A large set does not sleep while a port offers it. Its first client would come on an event loop, and have all others of that loop wait while
// endpoints are made of 60,000 addresses, a roster divides them, or a ring sorts them: 30 ms.

const (
	large       = 2000    // endpoints: the first client of a smaller set has it made ready in less than a millisecond
	maxPrepared = 1 << 18 // endpoints of all large sets, some 150 bytes each; beyond that the first client waits
)

// preparedLocked returns a set that is to come next: ready for its first client if it is large, or else as it is.
func (r *Rotation) preparedLocked(set *endpointSet) *endpointSet {
	old, n := r.set.Load(), 0
	if set.len() >= large && (old.prepared > 0 || r.offered.Load() != 0) {
		n = set.len()
	}
	if r.rules.prepared.Add(int64(n-old.prepared)) > maxPrepared {
		r.rules.prepared.Add(int64(-n))
		n = 0
	}
	if n == 0 {
		return set
	}
	if set.isAsleep() {
		set = awoken(r, set, nil)
	}
	for t := range set.everyTier() {
		for protocol := range health.Clients(r.offered.Load()).Each() {
			t.roster(protocol)
		}
		if r.rules.Algorithm(r.terms.Load().Balance) == registry.SourceAddress {
			t.hashRing()
		}
	}
	set.prepared = n
	return set
}
