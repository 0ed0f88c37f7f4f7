package rotation

import (
	"sync/atomic"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/balance/positions"
	"kubeproxy/registry"
)

// A tier is some endpoints of a set, which are equally near to a client, together with the cursor that walks them. A client is given those of
// another tier only while none of this one is ready. The list never changes.
type tier struct {
	endpoints []*Endpoint
	kind      kind                           // of the clients whose view it is in
	distance  uint8                          // 0: none is nearer to the node
	backup    bool                           // its endpoints stand by
	cursor    atomic.Uint64                  // a position, or with shares a number of turns
	walk      atomic.Uint64                  // with shares: the position from which nextReady goes on
	rosters   [2]atomic.Pointer[roster]      // by Protocol; nil until a client has to be given another than the one in turn
	ring      atomic.Pointer[positions.Ring] // nil until a client is chosen for by its address

	weights []int             // of the endpoints, by their positions; nil if all are alike: 1, or 0
	shares  *positions.Shares // of the endpoints, by their weights; nil without those
}

// setWeights has the endpoints be given clients by weights; nil: all are 1.
func (t *tier) setWeights(weights []int) {
	if weights == nil {
		return
	}
	if s := positions.NewShares(weights); !s.AreNone() {
		t.weights, t.shares = weights, s
	}
}

// position returns the position of an endpoint in the tier; -1: it is in another one, or is being given its place in a new set.
func (t *tier) position(e *Endpoint) int {
	if at := int(e.at[t.kind].Load()); at >= 0 && at < len(t.endpoints) && t.endpoints[at] == e {
		return at
	}
	return -1
}

// turn returns the position of the endpoint whose turn it is when the cursor is at n.
func (t *tier) turn(n uint64) int {
	if t.shares != nil {
		return t.shares.Turn(n)
	}
	return int(n % uint64(len(t.endpoints)))
}

// roster returns what the tier knows of who can be offered over a protocol. To make it costs as much as the tier has
// endpoints, once; a tier of a set that follows one with a roster has one from the start.
func (t *tier) roster(protocol registry.Protocol) *roster {
	r := &t.rosters[protocol]
	if r.Load() == nil {
		made := &roster{index: positions.NewReadiness(len(t.endpoints))}
		made.follow(t, protocol, false)
		if r.CompareAndSwap(nil, made) {
			made.follow(t, protocol, true)
		}
	}
	return r.Load()
}

// hashRing returns the ring of the tier. To make it costs as much as the tier has endpoints, once; a tier of a set that follows one with a
// ring has one from the start.
func (t *tier) hashRing() *positions.Ring {
	if r := t.ring.Load(); r != nil {
		return r
	}
	hashes := make([]uint64, len(t.endpoints))
	for i, e := range t.endpoints {
		hashes[i] = positions.EndpointHash(e.Addr)
	}
	t.ring.CompareAndSwap(nil, positions.NewRing(hashes, t.weights))
	return t.ring.Load()
}

// maxAlongRing bounds how far a search along the ring goes. Beyond it most endpoints are ejected, or a heavy one is, and the roster finds another.
const maxAlongRing = 64

// along returns the next endpoint on the ring that is ready and was not offered to the client with a hash, so all nodes that know the
// same health give the client the same one; nil when that search is too long.
func (t *tier) along(protocol registry.Protocol, client uint64, offered *offers) *Endpoint {
	ring := t.hashRing()
	for i, at := 1, ring.Find(client); i < maxAlongRing; i++ {
		if e := t.endpoints[ring.At(at+i)]; !offered.has(e) && !e.skips(protocol, false) {
			return e
		}
	}
	return nil
}

// maxConsidered is how many endpoints a roster considers for one attempt. Each consideration beyond those that the client was offered already
// finds an endpoint whose ejection the roster had missed, which is rare: the bound is for the worst case.
const maxConsidered = 64

// hasReady reports whether an endpoint is ready.
func (t *tier) hasReady(protocol registry.Protocol) bool {
	r := t.roster(protocol)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := monotonic.Now()
	r.index.Readmit(now)
	for {
		at := r.index.Next(0)
		if at < 0 {
			return false
		}
		e := t.endpoints[at]
		if due := e.returns(protocol); due != 0 && due > now { // a client finds out whether it has returned
			r.index.Set(at, due)
		} else if !e.isFull() || !r.leaveOut(at, e) {
			return true
		}
	}
}

// allFail reports whether no endpoint of the tier can be given to clients but such whose checks fail.
func (t *tier) allFail(protocol registry.Protocol) bool {
	r := t.roster(protocol)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index.Readmit(monotonic.Now())
	due, ejected := r.index.First()
	return r.index.Next(0) < 0 && len(r.full) == 0 && (!ejected || due >= health.Never)
}

// nextReady returns the next endpoint in turn that is ready and was not offered to the client, and moves the cursor
// of the tier, or its walk, past it: so the share of an ejected endpoint is spread over all others. With SourceAddress it is the first from a
// position of the client's own: all nodes find the same one, whomever they have served. Without one it returns nil, perhaps one that warms
// up (it is ready, but for a part of the clients only), and whether it left out others because they had no place.
func (t *tier) nextReady(c *Choice) (ready, warming *Endpoint, full bool) {
	r := t.roster(c.protocol)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index.Readmit(monotonic.Now())
	n, cursor := uint64(len(t.endpoints)), &t.cursor
	switch {
	case c.balance == registry.SourceAddress:
		cursor = new(atomic.Uint64)
		cursor.Store(c.client % n)
	case t.shares != nil:
		cursor = &t.walk
	}
	from := cursor.Load()
	for next, looks := from, 0; looks < maxConsidered; looks++ {
		at := r.index.Next(int(next % n))
		if at < 0 {
			break
		}
		next += (uint64(at)+n-next%n)%n + 1
		if next-from > n {
			break // once around
		}
		r.looks++
		e := t.endpoints[at]
		switch {
		case c.offered.has(e), e.isExcluded(): // the latter: since the roster was made
		case e.isFull() && r.leaveOut(at, e):
			looks-- // no later client considers it
		case e.skips(c.protocol, false):
			due := e.returns(c.protocol)
			if r.index.Set(at, due); due == 0 && warming == nil {
				warming = e
			}
		default:
			cursor.Add(next - from)
			return e, nil, false
		}
	}
	return nil, warming, len(r.full) > 0
}

// soonest returns the ejected endpoint that returns first, of those that were not offered to the client; nil: the client was offered all.
func (t *tier) soonest(protocol registry.Protocol, offered *offers) *Endpoint {
	r := t.roster(protocol)
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.index.Soonest(MaxOffers, func(at int) bool { // fewer than MaxOffers were offered
		r.looks++
		e := t.endpoints[at]
		return offered.has(e) || e.isExcluded() || e.isFull() && e.staysFull()
	})
	if at < 0 {
		return nil
	}
	e := t.endpoints[at]
	if due := e.returns(protocol); due >= health.Never { // as all do: they are offered in turn, since all checks may be wrong
		r.failing++
		r.index.Set(at, due+r.failing)
	}
	return e
}
