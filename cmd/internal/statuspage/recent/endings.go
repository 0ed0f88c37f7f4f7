package recent

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"kubeproxy/proxy/traffic"
)

// KeptEndings is how many endings are remembered.
const KeptEndings = 200

// Endings remembers the last endings. The zero value is empty.
type Endings struct {
	next  atomic.Uint64
	slots [KeptEndings]slot
}

// A slot is one ending. Who records never waits for its lock.
type slot struct {
	mu     sync.Mutex
	number uint64 // 0: none yet; the n-th ending since the start has number n
	ending traffic.Ending
}

// Record remembers an ending. It never waits, and may be called by any goroutine: while a viewer copies the slot that the ending
// would have, the ending is left out.
func (es *Endings) Record(e traffic.Ending) {
	n := es.next.Add(1)
	s := &es.slots[n%KeptEndings]
	if s.mu.TryLock() {
		s.number, s.ending = n, e
		s.mu.Unlock()
	}
}

// Last copies those endings that are wanted, the newest first.
func (es *Endings) Last(wanted func(*traffic.Ending) bool) []traffic.Ending {
	type numbered struct {
		number uint64
		ending traffic.Ending
	}
	var all []numbered
	for i := range es.slots {
		s := &es.slots[i]
		s.mu.Lock()
		if s.number > 0 && wanted(&s.ending) {
			all = append(all, numbered{s.number, s.ending})
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b numbered) int { return cmp.Compare(b.number, a.number) })
	endings := make([]traffic.Ending, len(all))
	for i, n := range all {
		endings[i] = n.ending
	}
	return endings
}
