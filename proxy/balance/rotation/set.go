package rotation

import (
	"math/rand/v2"
	"strings"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// Endpoints returns the endpoints of the rotation, in the order of the record.
func (r *Rotation) Endpoints() []*Endpoint { return r.awake().endpoints }

// awake returns the set that clients choose from. Only the first of them has to wait for a lock.
func (r *Rotation) awake() *endpointSet {
	if set := r.set.Load(); !set.isAsleep() {
		return set
	}
	r.mu.Lock() // or two clients would make endpoints, of which later sets keep only those of one
	defer r.mu.Unlock()
	return r.awakeLocked()
}

func (r *Rotation) awakeLocked() *endpointSet {
	set := r.set.Load()
	if set.isAsleep() {
		set = awoken(r, set, nil)
		r.set.Store(set)
	}
	return set
}

// awoken makes a set of endpoints that clients can be given: those that stay, at their positions, and new ones.
func awoken(r *Rotation, asleep *endpointSet, position map[*Endpoint]int) *endpointSet {
	set := &endpointSet{endpoints: make([]*Endpoint, asleep.addrs.Len()), places: asleep.places, weights: asleep.weights, overrides: asleep.overrides, zones: asleep.zones}
	if set.zones == nil && set.places != "" {
		set.zones = new(zones)
	}
	for e, at := range position {
		set.endpoints[at] = e
	}
	i, forbidden := 0, 0
	known := weightsInForce(asleep.addrs, set.weights, set.overrides)
	for addr := range asleep.addrs.All() {
		if set.endpoints[i] == nil {
			// Or the endpoint, which a connection or a client's affinity may keep for long, would keep the record's whole list.
			addr.Host = strings.Clone(addr.Host)
			set.endpoints[i] = &Endpoint{Addr: addr, Rotation: r, forbidden: !r.rules.Allows(addr)}
		}
		e, weight := set.endpoints[i], 1
		if known != nil {
			weight = known[i]
		}
		e.weight.Store(int32(weight))
		e.where.Store(uint32(set.places.At(i)))
		if weight == 0 {
			set.drained++
		}
		if e.forbidden {
			forbidden++
		}
		i++
	}
	set.divide(r.terms.Load().Distribution.Nearness(set.places, i), known, r.rules.Node.Name != "")
	for t := range set.everyTier() {
		t.cursor.Store(asleep.start % uint64(len(t.endpoints)))
		if t.shares != nil { // endpoints that change often would give a small share no turn, or too many
			t.cursor.Store(uint64(rand.Uint32()))
		}
	}
	if forbidden > 0 && forbidden < i { // when all are, those that turn clients away for it say so
		if note, ok := r.rules.unused.Allow(r.Key); ok {
			glog.Errorf("%s: %d of %d endpoints are not used: %v%s", r.Key, forbidden, i, registry.ErrNotAllowed, note)
		}
	}
	return set
}

// compare finds the endpoints that stay, with their positions among addrs, and those that go.
func (s *endpointSet) compare(addrs registry.Addrs) (position map[*Endpoint]int, gone map[registry.Addr]*Endpoint) {
	gone = make(map[registry.Addr]*Endpoint, len(s.endpoints))
	for _, e := range s.endpoints {
		gone[e.Addr] = e
	}
	position = make(map[*Endpoint]int)
	i := 0
	for addr := range addrs.All() {
		if e := gone[addr]; e != nil {
			delete(gone, addr)
			position[e] = i
		}
		i++
	}
	return position, gone
}
