package balance

import (
	"math"
	"math/rand/v2"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/choosing"
	"kubeproxy/registry"
)

// draw returns the endpoint that the algorithm gives to the client, whether it is ready or not; nil if there is none.
func (c *Choice) draw() *Endpoint {
	s := c.set
	n := len(s.endpoints)
	switch {
	case n == 0:
		return nil
	case c.balance == registry.LeastConnections:
		return s.leastLoaded(c.protocol)
	case c.balance == registry.SourceAddress:
		ring := s.hashRing()
		return s.endpoints[ring.At(ring.Find(c.client))]
	case s.shares != nil:
		return s.endpoints[s.shares.Turn(s.cursor.Add(1)-1)]
	}
	return s.endpoints[(s.cursor.Add(1)-1)%uint64(n)]
}

// maxAlongRing bounds how far a search along the ring goes. Beyond it most endpoints are ejected, and the roster finds one that is not.
const maxAlongRing = 64

// another returns a ready endpoint that the client was not offered, in place of the one that the algorithm gives it. With
// SourceAddress it is the next on the ring, so all nodes that know the same health give the client the same one. Otherwise, and when
// that search is too long, it is the next in turn. When all are ejected it is the one that returns first. nil: the client was offered all.
func (c *Choice) another() *Endpoint {
	if c.balance == registry.SourceAddress {
		ring := c.set.hashRing()
		for i, at := 1, ring.Find(c.client); i < maxAlongRing; i++ {
			if e := c.set.endpoints[ring.At(at+i)]; !c.hasOffered(e) && !e.passesOver(c.protocol) {
				return e
			}
		}
	}
	return c.set.roster(c.protocol).draw(c)
}

// leastLoaded returns the less loaded one of two endpoints that are chosen at random. That bounds the load of the fullest almost as
// well as a comparison of all does, costs the same for any number, and clients that arrive at one moment do not all choose the same.
func (s *endpointSet) leastLoaded(protocol registry.Protocol) *Endpoint {
	random := rand.Uint64()
	if s.shares != nil {
		return s.leastOfWeighted(random, protocol)
	}
	i, j := choosing.Two(random, len(s.endpoints))
	a, b := s.endpoints[i], s.endpoints[j]
	if b.load(protocol) < a.load(protocol) {
		return b
	}
	return a
}

// leastOfWeighted is leastLoaded where weights differ: each of the two is chosen as often as its weight says, and a load counts in
// proportion to it. The two may be the same.
func (s *endpointSet) leastOfWeighted(random uint64, protocol registry.Protocol) *Endpoint {
	i, j := s.shares.Random(uint32(random)), s.shares.Random(uint32(random>>32))
	a, b := s.endpoints[i], s.endpoints[j]
	if float64(b.load(protocol))*float64(s.weights[i]) < float64(a.load(protocol))*float64(s.weights[j]) {
		return b
	}
	return a
}

// load is how many clients of this node the endpoint has, those included that are connecting to it. An ejected one has most.
func (e *Endpoint) load(protocol registry.Protocol) int64 {
	x := e.known.Load()
	switch {
	case e.isExcluded():
		return math.MaxInt64
	case x == nil:
		return 0
	}
	if until := e.returns(protocol); until != 0 && monotonic.Now() < until {
		return math.MaxInt64
	}
	return x.active.Load() + x.Dialing.Load()
}

// hashRing returns the ring of the set. To make it costs as much as the set has endpoints, once; a set that follows one with a ring has
// one from the start.
func (s *endpointSet) hashRing() *choosing.Ring {
	if r := s.ring.Load(); r != nil {
		return r
	}
	hashes := make([]uint64, len(s.endpoints))
	for i, e := range s.endpoints {
		hashes[i] = choosing.HashOf(e.Addr)
	}
	s.ring.CompareAndSwap(nil, choosing.NewRing(hashes, s.weights))
	return s.ring.Load()
}
