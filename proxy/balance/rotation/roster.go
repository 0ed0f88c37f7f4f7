package rotation

import (
	"sync"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/positions"
	"kubeproxy/registry"
)

// A roster divides the endpoints of one set, over one protocol, into those that are ready to be offered and those that
// are ejected: they failed, or cannot be used for now. It finds the next one in turn, and the ejected one that
// returns first, at a cost that does not depend on how many there are (an ejection costs their logarithm). Endpoints
// whose address is not allowed, whose weight is 0, or which have as many clients as they may, are in neither part.
//
// A set has no roster until a client is to be given another endpoint than the one whose turn it is. The [health] of
// an endpoint is the truth; the roster only follows it, and corrects itself where it has missed something.
type roster struct {
	mu    sync.Mutex // guards the fields below
	index *positions.Readiness
	full  map[int]bool // positions of endpoints that are ready, but have no place left: in neither part of index
	looks uint64       // endpoints that were considered; for tests

	failing time.Duration // orders the endpoints whose checks fail: a number, and no time
}

// follow puts the endpoints of its tier where they belong. Who has the health of one change looks for the roster after that, and so does not find
// one that was made before and can be found only now: it follows again then. Of an endpoint that is not known nothing can have changed.
func (r *roster) follow(t *tier, protocol registry.Protocol, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := monotonic.Now()
	for at, e := range t.endpoints {
		if e.isExcluded() || again && (e.known.Load() == nil || r.full[at]) {
			continue
		}
		due := e.returns(protocol)
		if due <= now {
			due = 0
		}
		r.index.Set(at, due)
	}
}

// sort puts an endpoint where it belongs: it returns at due, or is ready when that is 0.
func (r *roster) sort(at int, due time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.full, at)
	r.index.Set(at, due)
}

// leavesOut reports whether an endpoint is ready, but has no place left.
func (r *roster) leavesOut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.full) > 0
}

// leaveOut takes an endpoint that is full out of those that are ready; false: a place is free by now (see [Endpoint.freed]). The caller holds mu.
func (r *roster) leaveOut(at int, e *Endpoint) bool {
	if !e.staysFull() {
		return false
	}
	if r.full == nil {
		r.full = make(map[int]bool)
	}
	r.full[at] = true
	r.index.Clear(at)
	return true
}
