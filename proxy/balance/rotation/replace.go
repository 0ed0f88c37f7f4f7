package rotation

import (
	"math/rand/v2"

	"github.com/golang/glog"

	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// Replace makes addrs the endpoints of the rotation, in that order. Where clients have come, the same addresses
// in another order change nothing; else the rotation goes on with the first surviving endpoint at or
// after the next one, and what was known of the health of survivors stays known (v0.4 began again
// at the first on every change).
func (r *Rotation) Replace(addrs registry.Addrs, weights registry.Weights) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.set.Load()
	position, gone := old.compare(addrs)
	if len(position) == len(old.endpoints) && len(position) == addrs.Len() && old.record == weights && !old.isAsleep() {
		return
	}
	set := &endpointSet{addrs: addrs, record: weights, drained: weights.Zeros(addrs)}
	if len(position) > 0 || r.isChecked() { // the others must be there beside them, or are to be checked
		set = awoken(r, addrs, weights, position)
		for protocol := range old.rosters {
			if old.rosters[protocol].Load() != nil {
				set.roster(registry.Protocol(protocol)) // here, and not while a client waits
			}
		}
		if old.ring.Load() != nil {
			set.hashRing()
		}
	}
	if r.rules.randomStart && addrs.Len() > 0 {
		set.cursor.Store(rand.Uint64N(uint64(addrs.Len())))
	}
	if at, ok := old.nextOf(position); ok {
		set.cursor.Store(uint64(at))
	}
	r.set.Store(set)
	defer r.changed()
	for _, e := range set.endpoints {
		r.watchLocked(e)
	}
	for _, e := range gone {
		r.unwatchLocked(e)
		if e.known.Load() != nil {
			r.rules.departed.add(e)
		}
		x := e.stats() // also of one that had none: a client may be choosing it just now
		x.gone.Store(true)
		x.lifetime.End(removal.PolicyOf(r.removal, r.rules.OnRemoval), traffic.EndpointRemoved, 0)
	}
	if v := glog.V(3); v {
		v.Infof("endpoints of %s: %d, of them known to clients %d, gone %d", r.Key, addrs.Len(), len(position), len(gone))
	}
}
