package rotation

import (
	"math/rand/v2"

	"kubeproxy/proxy/balance/positions"
	"kubeproxy/registry"
)

// draw returns the endpoint that an algorithm gives to the client with a hash, whether it is ready or not.
func (t *tier) draw(by registry.Balance, protocol registry.Protocol, client uint64) *Endpoint {
	switch {
	case by == registry.LeastConnections:
		return t.leastLoaded(protocol)
	case by == registry.SourceAddress:
		ring := t.hashRing()
		return t.endpoints[ring.At(ring.Find(client))]
	}
	return t.endpoints[t.turn(t.cursor.Add(1)-1)]
}

// fewEndpoints is up to how many endpoints leastLoaded compares all.
const fewEndpoints = 16

// leastLoaded returns the least loaded of a few endpoints: of several the next in turn. Of more it returns the less loaded one of two that
// are chosen at random. That bounds the load of the fullest almost as well as a comparison of all does, costs the same for any number,
// and clients that arrive at one moment do not all choose the same.
func (t *tier) leastLoaded(protocol registry.Protocol) *Endpoint {
	n := len(t.endpoints)
	if n <= fewEndpoints {
		return t.leastOfAll(protocol)
	}
	random := rand.Uint64()
	i, j := positions.Two(random, n)
	if t.shares != nil { // each is one of the two as often as its weight says; they may be the same
		i, j = t.shares.Random(uint32(random)), t.shares.Random(uint32(random>>32))
	}
	if t.isLess(t.endpoints[j].load(protocol), j, t.endpoints[i].load(protocol), i) {
		return t.endpoints[j]
	}
	return t.endpoints[i]
}

// leastOfAll compares all endpoints, and begins with the one whose turn it is.
func (t *tier) leastOfAll(protocol registry.Protocol) *Endpoint {
	n := len(t.endpoints)
	at := t.turn(t.cursor.Add(1) - 1)
	best, least := at, t.endpoints[at].load(protocol)
	for range n - 1 {
		if at++; at == n {
			at = 0
		}
		if load := t.endpoints[at].load(protocol); t.isLess(load, at, least, best) {
			best, least = at, load
		}
	}
	return t.endpoints[best]
}

// isLess reports whether load a at position i is less than load b at position j. A load counts in proportion to the weight.
func (t *tier) isLess(a int64, i int, b int64, j int) bool {
	if t.shares == nil {
		return a < b
	}
	return float64(a)*float64(t.weights[j]) < float64(b)*float64(t.weights[i])
}
