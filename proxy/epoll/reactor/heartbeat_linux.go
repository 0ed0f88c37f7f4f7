package reactor

import (
	"sync/atomic"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/traffic"
)

// A Heartbeat finds out whether a loop still turns. Every BeatEvery the loop is asked to answer, as any goroutine may ask
// it for something (see [Requests.Do]); an answer that is missing at too many looks in a row means that the loop stands still, be it
// in a step that does not end or because nothing wakes it.
//
// Looks are counted, and no time is measured: while the whole process is stopped (SIGSTOP, a machine that sleeps) there are no
// looks either, so that it is not taken for the loop's fault.
type Heartbeat struct {
	unanswered atomic.Bool
	missed     atomic.Int32 // looks in a row that found the question unanswered
}

// How often a loop is asked, and how many answers may be missing before it stands still.
const (
	BeatEvery = 500 * time.Millisecond
	BeatsLost = 10 // a loop that stands still is found after 5 to 5.5 s
)

// Beat looks whether the loop has answered, and asks it again if it has. A loop that has ended is asked no more.
func (h *Heartbeat) Beat(loop *Requests) {
	if h.unanswered.Load() {
		h.missed.Store(min(h.missed.Load()+1, BeatsLost))
		return
	}
	h.missed.Store(0)
	h.unanswered.Store(true)
	if !loop.Do(func() { h.unanswered.Store(false) }) {
		h.unanswered.Store(false)
	}
}

// IsLost reports whether the loop stands still. Any goroutine may call it.
func (h *Heartbeat) IsLost() bool { return h.missed.Load() >= BeatsLost }

// TurnTimes count the turns of a loop by how long they took. The loop writes, any goroutine reads.
type TurnTimes struct {
	buckets [len(traffic.TurnBuckets) + 1]atomic.Uint64
	sum     atomic.Int64 // nanoseconds
	longest atomic.Int64 // likewise
	began   atomic.Int64 // the present turn, by the clock of Now; 0 while the loop waits
}

// Begin notes that a turn begins.
func (t *TurnTimes) Begin(now time.Duration) { t.began.Store(int64(now)) }

// End notes that the present turn is over. The loop is the only one that writes, so no two additions meet.
func (t *TurnTimes) End(now time.Duration) {
	took := now - time.Duration(t.began.Load())
	t.began.Store(0)
	bucket := &t.buckets[bucketOf(took)]
	bucket.Store(bucket.Load() + 1)
	t.sum.Store(t.sum.Load() + int64(took))
	if int64(took) > t.longest.Load() {
		t.longest.Store(int64(took))
	}
}

// AddTo adds the turns to a sum, the present one to the longest.
func (t *TurnTimes) AddTo(sum *traffic.TurnTimes) {
	for i := range t.buckets {
		sum.Buckets[i] += t.buckets[i].Load()
	}
	sum.Sum += time.Duration(t.sum.Load())
	sum.Longest = max(sum.Longest, time.Duration(t.longest.Load()), t.Present())
}

// bucketOf is the index of the first of TurnBuckets that is no less than took.
func bucketOf(took time.Duration) int {
	if took <= traffic.TurnBuckets[0] {
		return 0 // nearly always
	}
	n := 0
	for n < len(traffic.TurnBuckets) && took > traffic.TurnBuckets[n] {
		n++
	}
	return n
}

// Present is how long the present turn has lasted; 0 while the loop waits.
func (t *TurnTimes) Present() time.Duration {
	if began := t.began.Load(); began > 0 {
		return monotonic.Now() - time.Duration(began)
	}
	return 0
}
