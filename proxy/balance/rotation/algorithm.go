package rotation

import (
	"math/rand/v2"

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
		return s.endpoints[ring.at(ring.find(client))]
	case s.shares != nil:
		return s.endpoints[s.shares.turn(s.cursor.Add(1)-1)]
	}
	return s.endpoints[(s.cursor.Add(1)-1)%uint64(n)]
}

// fewEndpoints is up to how many endpoints leastLoaded compares all.
const fewEndpoints = 16

// leastLoaded returns the least loaded of a few endpoints: of several the next in turn. Of more it returns the less loaded one of two that
// are chosen at random. That bounds the load of the fullest almost as well as a comparison of all does, costs the same for any number,
// and clients that arrive at one moment do not all choose the same.
func (s *endpointSet) leastLoaded(protocol registry.Protocol) *Endpoint {
	n := len(s.endpoints)
	if n <= fewEndpoints {
		return s.leastOfAll(protocol)
	}
	random := rand.Uint64()
	i, j := two(random, n)
	if s.shares != nil { // each is one of the two as often as its weight says; they may be the same
		i, j = s.shares.random(uint32(random)), s.shares.random(uint32(random>>32))
	}
	if s.isLess(s.endpoints[j].load(protocol), j, s.endpoints[i].load(protocol), i) {
		return s.endpoints[j]
	}
	return s.endpoints[i]
}

// leastOfAll compares all endpoints, and begins with the one whose turn it is.
func (s *endpointSet) leastOfAll(protocol registry.Protocol) *Endpoint {
	n := len(s.endpoints)
	turn := s.cursor.Add(1) - 1
	at := int(turn % uint64(n))
	if s.shares != nil {
		at = s.shares.turn(turn)
	}
	best := at
	least := s.endpoints[best].load(protocol)
	for range n - 1 {
		if at++; at == n {
			at = 0
		}
		if load := s.endpoints[at].load(protocol); s.isLess(load, at, least, best) {
			best, least = at, load
		}
	}
	return s.endpoints[best]
}

// isLess reports whether load a at position i is less than load b at position j. A load counts in proportion to the weight.
func (s *endpointSet) isLess(a int64, i int, b int64, j int) bool {
	if s.shares == nil {
		return a < b
	}
	return float64(a)*float64(s.weights[j]) < float64(b)*float64(s.weights[i])
}
