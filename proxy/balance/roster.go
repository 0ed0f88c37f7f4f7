package balance

import (
	"sync"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/ejection"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// A roster divides the endpoints of one set, over one protocol, into those that are ready to be offered and those that
// are ejected: they failed, or cannot be used for now. It finds the next one in turn, and the ejected one that
// returns first, at a cost that does not depend on how many there are (an ejection costs their logarithm). Endpoints
// whose address is not allowed, or whose weight is 0, are in neither part.
//
// A set has no roster until a client is to be given another endpoint than the one whose turn it is. The [health] of
// an endpoint is the truth; the roster only follows it, and corrects itself where it has missed something.
type roster struct {
	mu    sync.Mutex // guards the fields below
	index *ejection.Index
	looks uint64 // endpoints that were considered; for tests

	failing time.Duration // orders the endpoints whose checks fail: a number, and no time
}

// maxConsidered is how many endpoints a roster considers for one attempt. Each consideration beyond those that the
// client was offered already finds an endpoint whose ejection the roster had missed, which is rare: the bound is for
// the worst case.
const maxConsidered = 64

func newRoster(set *endpointSet, protocol registry.Protocol) *roster {
	r := &roster{index: ejection.NewIndex(len(set.endpoints))}
	now := monotonic.Now()
	for at, e := range set.endpoints {
		if e.isExcluded() {
			continue
		}
		due := e.returns(protocol)
		if due <= now {
			due = 0
		}
		r.index.Set(at, due)
	}
	return r
}

// draw returns the next endpoint in turn that is ready and was not offered to the client of c, and moves the cursor
// of the set past it: so the share of an ejected endpoint is spread over all others. When all are ejected, it
// returns the one that returns first. It returns nil when the client was offered all.
func (r *roster) draw(c *Choice) *Endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	set := c.set
	r.index.Readmit(monotonic.Now())
	n, from := uint64(len(set.endpoints)), set.cursor.Load()
	var warming *Endpoint // that is ready, but for a part of the clients only
	for next, looks := from, 0; looks < maxConsidered; looks++ {
		at := r.index.NextReady(int(next % n))
		if at < 0 {
			break
		}
		next += (uint64(at)+n-next%n)%n + 1
		if next-from > n {
			break // once around
		}
		r.looks++
		e := set.endpoints[at]
		switch {
		case c.hasOffered(e), e.isExcluded(): // the latter: since the roster was made
		case e.passesOver(c.protocol):
			due := e.returns(c.protocol)
			if r.index.Set(at, due); due == 0 && warming == nil {
				warming = e
			}
		default:
			set.cursor.Add(next - from)
			return e
		}
	}
	if warming != nil {
		return warming
	}
	at := r.index.Soonest(MaxOffers, func(at int) bool { // fewer than MaxOffers were offered
		r.looks++
		return c.hasOffered(set.endpoints[at]) || set.endpoints[at].isExcluded()
	})
	if at >= 0 {
		e := set.endpoints[at]
		if due := e.returns(c.protocol); due >= health.Never { // as all do: they are offered in turn, since all checks may be wrong
			r.failing++
			r.index.Set(at, due+r.failing)
		}
		return e
	}
	if e := set.endpoints[from%n]; c.Offers == 0 && e.forbidden {
		return e // as all are: one of them says why the client is refused
	}
	return nil
}

// sort puts an endpoint where it belongs: it returns at due, or is ready when that is 0.
func (r *roster) sort(at int, due time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index.Set(at, due)
}
