package rotation

import (
	"iter"
	"maps"
	"math/rand/v2"

	"github.com/golang/glog"

	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// Replace makes the addresses of a list the endpoints of the rotation, in that order. Where clients have come, the same addresses
// in another order change nothing; else the rotation goes on with the first surviving endpoint at or after the next one, or with weights at
// a random turn of their round, and what was known of the health of survivors stays known (v0.4 began again at the first on every change).
func (r *Rotation) Replace(list registry.PortAddrs, weights registry.Weights) {
	r.ReplaceOverriding(list, weights, nil)
}

// ReplaceOverriding is Replace with weights that operators want in place of those of the record: see [Rotation.Override].
func (r *Rotation) ReplaceOverriding(list registry.PortAddrs, weights registry.Weights, overrides map[registry.Addr]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, addrs := r.set.Load(), list.Addrs
	position, gone := old.compare(addrs)
	same := len(position) == len(old.endpoints) && len(position) == addrs.Len() && old.weights == weights && old.places == "" && list.Places == ""
	if same && maps.Equal(old.overrides, overrides) && !old.isAsleep() { // places are in the order of the addresses
		return
	}
	set := &endpointSet{addrs: addrs, places: list.Places, weights: weights, overrides: overrides, drained: weights.Zeros(addrs), zones: old.zones}
	if r.rules.randomStart && addrs.Len() > 0 {
		set.start = rand.Uint64N(uint64(addrs.Len()))
	}
	if len(position) > 0 || r.checks != nil || len(overrides) > 0 { // the others must be there beside them, or are to be checked
		set = r.after(old, set, position)
	}
	set = r.preparedLocked(set)
	for _, e := range gone { // before the rotation has it no more, or who counts clients would meet it nowhere
		r.rules.departed.add(e)
	}
	r.put(set)
	defer r.changed()
	for _, e := range set.endpoints {
		r.watchLocked(e)
	}
	for _, e := range gone {
		r.unwatchLocked(e, [2]check{})
		x := e.stats() // also of one that had none: a client may be choosing it just now
		x.gone.Store(true)
		e.Lifetime().End(removal.PolicyOf(r.terms.Load().Removal, r.rules.OnRemoval), traffic.EndpointRemoved, 0)
	}
	if v := glog.V(3); v {
		v.Infof("endpoints of %s: %d, of them known to clients %d, gone %d", r.Key, addrs.Len(), len(position), len(gone))
	}
}

// after wakes up a set that follows an old one, of which some endpoints stay, at these positions. It knows from the start what the old one had
// to find out.
func (r *Rotation) after(old, asleep *endpointSet, position map[*Endpoint]int) *endpointSet {
	set := awoken(r, asleep, position)
	var rosters [2]bool
	ring := false
	for t := range old.everyTier() {
		rosters[registry.TCP] = rosters[registry.TCP] || t.rosters[registry.TCP].Load() != nil
		rosters[registry.UDP] = rosters[registry.UDP] || t.rosters[registry.UDP].Load() != nil
		ring = ring || t.ring.Load() != nil
	}
	for t := range set.everyTier() { // here, and not while a client waits
		for protocol, known := range rosters {
			if known {
				t.roster(registry.Protocol(protocol))
			}
		}
		if ring {
			t.hashRing()
		}
	}
	set.begin(func(k kind) iter.Seq[*Endpoint] { return old.seenBy(k).inTurn() })
	return set
}

// followLocked has the rotation follow the terms of its service.
func (r *Rotation) followLocked(terms *registry.Terms) {
	before, old := r.terms.Swap(terms), r.set.Load()
	if terms.Local != before.Local || terms.Failure != before.Failure {
		defer r.changed()
	}
	if terms.Limits.PerEndpoint != before.Limits.PerEndpoint {
		defer r.changed()
		for _, e := range old.endpoints { // those that were full may have free places
			if x := e.known.Load(); x != nil {
				e.freed(x)
			}
		}
	}
	if terms.Distribution == before.Distribution || old.isAsleep() || old.len() == 0 {
		return
	}
	defer r.changed()
	r.remakeLocked(old, old.overrides)
}

// remakeLocked makes a set of the same endpoints.
func (r *Rotation) remakeLocked(old *endpointSet, overrides map[registry.Addr]int) {
	position := make(map[*Endpoint]int, len(old.endpoints))
	var addrs registry.AddrsBuilder
	for i, e := range old.endpoints {
		position[e] = i
		addrs.Add(e.Addr)
	}
	set := &endpointSet{addrs: addrs.Addrs(), places: old.places, weights: old.weights, overrides: overrides, zones: old.zones}
	r.put(r.preparedLocked(r.after(old, set, position)))
}

// put has clients find a set.
func (r *Rotation) put(set *endpointSet) {
	r.set.Store(set)
	for t := range set.everyTier() {
		for protocol := range t.rosters {
			if known := t.rosters[protocol].Load(); known != nil {
				known.follow(t, registry.Protocol(protocol), true)
			}
		}
	}
}
