package engine

import (
	"slices"
	"sync"
	"time"

	"kubeproxy/internal/monotonic"
)

// A fairness shares out the last TCP connections of the node. While more than lastShare of them are free, a service may have as many as
// it likes: one alone has nearly all. The last ones are for services that have less than their share (max-min fairness): connections that end
// so go over to them, until all that want more have the same. No connection is cut for that.
//
//	connections of the node   0 ──────────── any service ──────────── 95 % ── services below their share ── 100 %
//
// It looks at the counts of all services only while nearly all connections are used, and then for a fiftieth of the time at most.
type fairness struct {
	mu     sync.Mutex    // guards the fields below
	next   time.Duration // when counts are too old
	took   time.Duration // what a look takes
	counts []int64       // of services with connections, in their order
	sums   []int64       // sums[i] is that of counts[:i]
}

// lastShare is the share of the connections that is for services below theirs: one of so many. A node with fewer has none.
const lastShare = 20

// rest is how many times as long as a look takes there is none after it.
const rest = 50

// isBelow reports whether n connections of a service are less than its share of most, where services with less than n keep what they have.
func (f *fairness) isBelow(n, most int64, each func(yield func(int64) bool)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := monotonic.Now(); f.sums == nil || now >= f.next {
		f.counts, f.sums = f.counts[:0], append(f.sums[:0], 0)
		for n := range each {
			f.counts = append(f.counts, n)
		}
		slices.Sort(f.counts)
		for i, n := range f.counts {
			f.sums = append(f.sums, f.sums[i]+n)
		}
		// A look that took far longer than the one before did not run all the time; after a long rest the counts would be of another time.
		if took := max(1, monotonic.Now()-now); f.took == 0 || took < 2*f.took {
			f.took = took
		} else {
			f.took *= 2
		}
		f.next = now + rest*f.took
	}
	less, _ := slices.BinarySearch(f.counts, n)
	others := int64(max(1, len(f.counts)-less)) // that have as much or more, the service itself included
	return n*others < most-f.sums[less]
}
