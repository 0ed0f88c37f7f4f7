// Package behind decides when a watch is too far behind its etcd to be waited for.
//
// # Why there is a bound
//
// Etcd sends a watch what it can take: a window of bytes, and 128 responses that wait in etcd. Who takes no more, because its process is
// stopped or busy, costs etcd nothing then. It costs when it goes on. Each 100 ms etcd reads all revisions from the one that the slowest
// watch needs next up to the newest, and gives that watch the first 1,000 of them. Meanwhile it holds a lock that each write needs. So a
// watch that is N revisions behind has etcd read about N²/2,000 of them, and each write may wait for N
// (https://github.com/etcd-io/etcd/issues/22264). A list of everything has the newest value of each key once, and holds that lock not at all.
//
// # How it is found out
//
// A process that was stopped cannot act before it goes on, and then first finds what was sent long ago. So after a silence of the watch the
// first thing is to ask etcd for its revision. While that is further than [Limits].Revisions, the watch may tell [Limits].Bytes, no
// more. These are fewer than etcd's window waits for: as long as they are taken etcd sends no more, and does not begin to read.
// A watch of which little has changed meanwhile is in step: it comes to etcd's revision within these bytes, and is kept.
//
// Watches of single keys share the stream, and etcd reads for them as well. Their bytes count, but only the watch of the registry says how far it has come.
//
// Responses say more: to a watch that has fallen behind etcd says in the header which revision it has reached. So a watch that never falls
// silent, and is too slow, is found out as well.
package behind

import (
	"cmp"
	"fmt"
	"time"
)

// Limits say how far behind a watch may be. A zero field is its default.
type Limits struct {
	Revisions int64 // behind etcd's newest; 5,000
	Bytes     int   // of keys and values, with 256 for each, that a watch further behind may still tell; 16 KiB
}

// The defaults. Etcd holds a write back for about 1 µs for each revision that it reads: for 5 ms at most. It sends more when the
// watch has taken a quarter of its window, which is 32 KiB.
const (
	defaultRevisions = 5000
	defaultBytes     = 16 << 10
)

// A Gauge measures one watch. Its methods are for one goroutine, and do no I/O.
type Gauge struct {
	limits  Limits
	silence time.Duration

	last   time.Time // when the watch last said something; zero before
	told   int64     // everything up to this revision has been told of; 0 before
	newest int64     // which etcd is known to have reached
	goal   int64     // the watch has to come close to this revision; 0: it has
	taken  int       // bytes that it has told since
}

// New returns a gauge. A watch that said nothing for longer than silence may be behind: see [Gauge.Stalled].
func New(limits Limits, silence time.Duration) *Gauge {
	return &Gauge{limits: Limits{cmp.Or(limits.Revisions, defaultRevisions), cmp.Or(limits.Bytes, defaultBytes)}, silence: silence}
}

// Stalled notes that the watch has said something at a moment. It reports whether that was the first for so long that etcd has to be asked for
// its revision, before anything more is taken from the watch; the answer is for [Gauge.Reached].
func (g *Gauge) Stalled(at time.Time) bool {
	stalled := !g.last.IsZero() && at.Sub(g.last) > g.silence
	g.last = at
	return stalled
}

// Reached notes that etcd has reached a revision.
func (g *Gauge) Reached(revision int64) {
	g.newest = max(g.newest, revision)
	if g.goal == 0 && g.told > 0 && g.newest-g.told > g.limits.Revisions {
		g.goal, g.taken = g.newest, 0
	}
}

// Told notes that the watch has told of everything up to a revision, with so many bytes. An error says that it is too far behind, and how far.
func (g *Gauge) Told(revision int64, bytes int) error {
	g.told = max(g.told, revision)
	if g.goal == 0 {
		return nil
	}
	if g.goal-g.told <= g.limits.Revisions {
		g.goal = 0
		return nil
	}
	if g.taken += bytes; g.taken <= g.limits.Bytes {
		return nil
	}
	return fmt.Errorf("the watch is %d revisions behind, at %d of %d, after %d KiB more of changes: reading everything is faster",
		g.newest-g.told, g.told, g.newest, g.taken>>10)
}
