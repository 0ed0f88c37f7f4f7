package rotation

import (
	"sync"
	"time"

	"kubeproxy/proxy/balance/positions"
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
	index *positions.Readiness
	looks uint64 // endpoints that were considered; for tests

	failing time.Duration // orders the endpoints whose checks fail: a number, and no time
}

// sort puts an endpoint where it belongs: it returns at due, or is ready when that is 0.
func (r *roster) sort(at int, due time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index.Set(at, due)
}
