package rotation

import (
	"slices"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// MaxOffers is how many endpoints a client is offered. Sixteen failures in a row mean an outage. The bound limits what
// one client can cost when a record lists thousands of endpoints without a route. Each endpoint that failed is ejected, so the next clients
// are offered others.
const MaxOffers = 16

// Offers are the endpoints that one client was offered.
type offers struct {
	n       int         // how many
	earlier []*Endpoint // all but the last
	last    *Endpoint
}

func (o *offers) add(e *Endpoint) {
	if o.last != nil {
		o.earlier = append(o.earlier, o.last)
	}
	o.last = e
	o.n++
}

func (o *offers) has(e *Endpoint) bool { return e == o.last || slices.Contains(o.earlier, e) }

// maxAlongRing bounds how far a search along the ring goes. Beyond it most endpoints are ejected, and the roster finds one that is not.
const maxAlongRing = 64

// along returns the next endpoint on the ring that is ready and was not offered to the client with a hash, so all nodes that know the
// same health give the client the same one; nil when that search is too long.
func (s *endpointSet) along(protocol registry.Protocol, client uint64, offered *offers) *Endpoint {
	ring := s.hashRing()
	for i, at := 1, ring.find(client); i < maxAlongRing; i++ {
		if e := s.endpoints[ring.at(at+i)]; !offered.has(e) && !e.skips(protocol) {
			return e
		}
	}
	return nil
}

// maxConsidered is how many endpoints a roster considers for one attempt. Each consideration beyond those that the
// client was offered already finds an endpoint whose ejection the roster had missed, which is rare: the bound is for
// the worst case.
const maxConsidered = 64

// hasReady reports whether an endpoint is ready.
func (s *endpointSet) hasReady(protocol registry.Protocol) bool {
	if s.len() == 0 {
		return false
	}
	r := s.roster(protocol)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index.readmit(monotonic.Now())
	return r.index.nextReady(0) >= 0
}

// nextReady returns the next endpoint in turn that is ready and was not offered to the client, and moves the cursor
// of the set past it: so the share of an ejected endpoint is spread over all others. When all are ejected, it
// returns the one that returns first. It returns nil when the client was offered all.
func (s *endpointSet) nextReady(protocol registry.Protocol, offered *offers) *Endpoint {
	r := s.roster(protocol)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index.readmit(monotonic.Now())
	n, from := uint64(len(s.endpoints)), s.cursor.Load()
	var warming *Endpoint // that is ready, but for a part of the clients only
	for next, looks := from, 0; looks < maxConsidered; looks++ {
		at := r.index.nextReady(int(next % n))
		if at < 0 {
			break
		}
		next += (uint64(at)+n-next%n)%n + 1
		if next-from > n {
			break // once around
		}
		r.looks++
		e := s.endpoints[at]
		switch {
		case offered.has(e), e.isExcluded(): // the latter: since the roster was made
		case e.skips(protocol):
			due := e.returns(protocol)
			if r.index.set(at, due); due == 0 && warming == nil {
				warming = e
			}
		default:
			s.cursor.Add(next - from)
			return e
		}
	}
	if warming != nil {
		return warming
	}
	at := r.index.soonest(MaxOffers, func(at int) bool { // fewer than MaxOffers were offered
		r.looks++
		return offered.has(s.endpoints[at]) || s.endpoints[at].isExcluded()
	})
	if at >= 0 {
		e := s.endpoints[at]
		if due := e.returns(protocol); due >= health.Never { // as all do: they are offered in turn, since all checks may be wrong
			r.failing++
			r.index.set(at, due+r.failing)
		}
		return e
	}
	if e := s.endpoints[from%n]; offered.n == 0 && e.forbidden {
		return e // as all are: one of them says why the client is refused
	}
	return nil
}
