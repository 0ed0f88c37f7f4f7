package balance

import (
	"container/heap"
	"math/bits"
	"sync"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/registry"
)

// A roster divides the endpoints of one set, over one protocol, into those that are ready to be offered and those that
// are ejected: they failed, or cannot be used for now. It finds the next one in turn, and the ejected one that
// returns first, at a cost that does not depend on how many there are (an ejection costs their logarithm). Endpoints
// whose address is not allowed are in neither part.
//
// A set has no roster until a client is to be given another endpoint than the one whose turn it is. The [health] of
// an endpoint is the truth; the roster only follows it, and corrects itself where it has missed something.
type roster struct {
	mu      sync.Mutex // guards the fields below
	ready   positions
	ejected ejections
	looks   uint64 // endpoints that were considered; for tests
}

// How many endpoints a roster considers for one attempt, and how many that are due it makes ready again. Each
// consideration beyond those that the client was offered already finds an endpoint whose ejection the
// roster had missed, which is rare: the bound is for the worst case.
const (
	maxConsidered = 64
	maxReadmitted = 64
)

func newRoster(set *endpointSet, protocol registry.Protocol) *roster {
	n := len(set.endpoints)
	r := &roster{ready: newPositions(n), ejected: ejections{where: make([]int32, n)}}
	now := monotonic.Now()
	for at, e := range set.endpoints {
		if e.forbidden {
			continue
		}
		if due := e.returns(protocol); due != 0 && due > now {
			heap.Push(&r.ejected, ejection{at, due})
		} else {
			r.ready.add(at)
		}
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
	r.readmitLocked(monotonic.Now())
	n, from := uint64(len(set.endpoints)), set.cursor.Load()
	for next, looks := from, 0; looks < maxConsidered; looks++ {
		at := r.ready.nextInCircle(int(next % n))
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
		case c.hasOffered(e):
		case e.passesOver(c.protocol):
			r.sortLocked(at, e.returns(c.protocol))
		default:
			set.cursor.Add(next - from)
			return e
		}
	}
	if at := r.soonestLocked(c); at >= 0 {
		return set.endpoints[at]
	}
	if e := set.endpoints[from%n]; c.Offers == 0 && e.forbidden {
		return e // as all are: one of them says why the client is refused
	}
	return nil
}

// readmitLocked makes endpoints ready whose time to return has come.
func (r *roster) readmitLocked(now time.Duration) {
	for range maxReadmitted {
		if r.ejected.Len() == 0 || r.ejected.heap[0].due > now {
			return
		}
		r.ready.add(heap.Pop(&r.ejected).(ejection).at)
	}
}

// soonestLocked returns the position of the ejected endpoint that returns first of those that the client was not
// offered, or -1. Of the others there are fewer than MaxOffers.
func (r *roster) soonestLocked(c *Choice) int {
	var offered [MaxOffers]ejection
	n, at := 0, -1
	for r.ejected.Len() > 0 && n < MaxOffers {
		r.looks++
		first := r.ejected.heap[0]
		if !c.hasOffered(c.set.endpoints[first.at]) {
			at = first.at
			break
		}
		offered[n] = heap.Pop(&r.ejected).(ejection)
		n++
	}
	for _, x := range offered[:n] {
		heap.Push(&r.ejected, x)
	}
	return at
}

// sort puts an endpoint where it belongs: it returns at due, or is ready when that is 0.
func (r *roster) sort(at int, due time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sortLocked(at, due)
}

func (r *roster) sortLocked(at int, due time.Duration) {
	i := int(r.ejected.where[at]) - 1
	switch {
	case due == 0:
		if i >= 0 {
			heap.Remove(&r.ejected, i)
		}
		r.ready.add(at)
	case i >= 0:
		r.ejected.heap[i].due = due
		heap.Fix(&r.ejected, i)
	default:
		r.ready.remove(at)
		heap.Push(&r.ejected, ejection{at, due})
	}
}

// An ejection is the position of an endpoint that is ejected, and when it returns.
type ejection struct {
	at  int
	due time.Duration // by the clock of Now
}

// Ejections are a heap, the one that is due first on top.
type ejections struct {
	heap  []ejection
	where []int32 // by position: the index in heap, plus 1; 0 for one that is not ejected
}

// Len counts the ejections. With Less, Swap, Push and Pop it is what container/heap asks for.
func (x *ejections) Len() int { return len(x.heap) }

// Less compares two by their times.
func (x *ejections) Less(i, j int) bool { return x.heap[i].due < x.heap[j].due }

// Swap exchanges two, and what is known of where they are.
func (x *ejections) Swap(i, j int) {
	x.heap[i], x.heap[j] = x.heap[j], x.heap[i]
	x.where[x.heap[i].at], x.where[x.heap[j].at] = int32(i+1), int32(j+1)
}

// Push adds an ejection at the end.
func (x *ejections) Push(v any) {
	x.heap = append(x.heap, v.(ejection))
	x.where[v.(ejection).at] = int32(len(x.heap))
}

// Pop takes the last ejection.
func (x *ejections) Pop() any {
	last := x.heap[len(x.heap)-1]
	x.heap = x.heap[:len(x.heap)-1]
	x.where[last.at] = 0
	return last
}

// Positions are a set of small numbers: a bitmap, a bitmap of the words of that which are not zero, and so on, up to a
// single word. Three levels hold 262,144.
type positions [][]uint64

func newPositions(n int) positions {
	var p positions
	for n > 0 {
		n = (n + 63) / 64
		p = append(p, make([]uint64, n))
		if n == 1 {
			break
		}
	}
	return p
}

func (p positions) add(i int) {
	for _, words := range p {
		words[i/64] |= 1 << (i % 64)
		i /= 64
	}
}

func (p positions) remove(i int) {
	for _, words := range p {
		if words[i/64] &^= 1 << (i % 64); words[i/64] != 0 {
			return
		}
		i /= 64
	}
}

// nextInCircle returns the first number from i on, or else the first of all; -1 when there is none.
func (p positions) nextInCircle(i int) int {
	if at := p.next(i); at >= 0 {
		return at
	}
	return p.next(0)
}

// next returns the first number from i on, or -1.
func (p positions) next(i int) int {
	for level, words := range p {
		if i/64 >= len(words) {
			return -1
		}
		if rest := words[i/64] >> (i % 64); rest != 0 {
			i += bits.TrailingZeros64(rest)
			for level--; level >= 0; level-- {
				i = i*64 + bits.TrailingZeros64(p[level][i])
			}
			return i
		}
		i = i/64 + 1
	}
	return -1
}
