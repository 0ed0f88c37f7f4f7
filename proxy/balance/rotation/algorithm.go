package rotation

import (
	"math/rand/v2"

	"kubeproxy/proxy/balance/choosing"
	"kubeproxy/registry"
)

// draw returns the endpoint that an algorithm gives to the client with a hash, whether it is ready or not; nil if there is none.
func (s *endpointSet) draw(by registry.Balance, protocol registry.Protocol, client uint64) *Endpoint {
	n := len(s.endpoints)
	switch {
	case n == 0:
		return nil
	case by == registry.LeastConnections:
		return s.leastLoaded(protocol)
	case by == registry.SourceAddress:
		ring := s.hashRing()
		return s.endpoints[ring.At(ring.Find(client))]
	case s.shares != nil:
		return s.endpoints[s.shares.Turn(s.cursor.Add(1)-1)]
	}
	return s.endpoints[(s.cursor.Add(1)-1)%uint64(n)]
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
