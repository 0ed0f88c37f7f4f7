package rotation

import (
	"strings"

	"github.com/golang/glog"

	"kubeproxy/internal/monotonic"
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
	asleep := r.set.Load()
	if !asleep.isAsleep() {
		return asleep
	}
	set := awoken(r, asleep.addrs, asleep.record, nil)
	set.cursor.Store(asleep.cursor.Load())
	r.set.Store(set)
	return set
}

// awoken makes a set of endpoints that clients can be given: those that stay, at their positions, and new ones.
func awoken(r *Rotation, addrs registry.Addrs, weights registry.Weights, position map[*Endpoint]int) *endpointSet {
	set := &endpointSet{endpoints: make([]*Endpoint, addrs.Len()), record: weights}
	for e, at := range position {
		set.endpoints[at] = e
	}
	i, forbidden, spare := 0, 0, 0
	known := weights.Of(addrs)
	for addr := range addrs.All() {
		if set.endpoints[i] == nil {
			// Or the endpoint, which a connection or a client's affinity may keep for long, would keep the record's whole list.
			addr.Host = strings.Clone(addr.Host)
			set.endpoints[i] = &Endpoint{Addr: addr, Rotation: r, forbidden: !r.rules.allows(addr)}
		}
		e, weight := set.endpoints[i], 1
		if known != nil {
			weight = known[i]
		}
		e.at.Store(int32(i))
		e.weight.Store(int32(weight))
		switch {
		case e.forbidden:
			forbidden++
		case weight == 0:
			spare++
		}
		if weight == 0 {
			set.drained++
		}
		i++
	}
	set.allowed = i - forbidden - spare
	if known != nil {
		if shares := newShares(known); !shares.areNone() {
			set.weights, set.shares = known, shares
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

// nextOf returns the position of the endpoint whose turn it is, of those that stay; false: none does.
func (s *endpointSet) nextOf(position map[*Endpoint]int) (at int, ok bool) {
	n := uint64(len(s.endpoints))
	for i, next := uint64(0), s.cursor.Load(); i < n; i++ {
		if at, ok := position[s.endpoints[(next+i)%n]]; ok {
			return at, true
		}
	}
	return 0, false
}

// roster returns what the set knows of who can be offered over a protocol. To make it costs as much as the set has
// endpoints, once; a set that follows one with a roster has one from the start.
func (s *endpointSet) roster(protocol registry.Protocol) *roster {
	r := &s.rosters[protocol]
	if r.Load() == nil {
		r.CompareAndSwap(nil, newRoster(s, protocol))
	}
	return r.Load()
}

func newRoster(set *endpointSet, protocol registry.Protocol) *roster {
	r := &roster{index: newReadyIndex(len(set.endpoints))}
	now := monotonic.Now()
	for at, e := range set.endpoints {
		if e.isExcluded() {
			continue
		}
		due := e.returns(protocol)
		if due <= now {
			due = 0
		}
		r.index.set(at, due)
	}
	return r
}

// hashRing returns the ring of the set. To make it costs as much as the set has endpoints, once; a set that follows one with a ring has
// one from the start.
func (s *endpointSet) hashRing() *ring {
	if r := s.ring.Load(); r != nil {
		return r
	}
	hashes := make([]uint64, len(s.endpoints))
	for i, e := range s.endpoints {
		hashes[i] = endpointHash(e.Addr)
	}
	s.ring.CompareAndSwap(nil, newRing(hashes, s.weights))
	return s.ring.Load()
}
