package epoll

import (
	"fmt"
	"sync/atomic"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/traffic"
)

// A heartbeat finds out whether a loop still turns. Every beatEvery the loop is asked to answer, as anybody may ask
// it for something (see [requests.do]); an answer that is missing at too many looks in a row means that the loop stands still, be it
// in a step that does not end or because nothing wakes it.
//
// Looks are counted, and no time is measured: while the whole process is stopped (SIGSTOP, a machine that sleeps) there are no
// looks either, so that it is not taken for the loop's fault.
type heartbeat struct {
	unanswered atomic.Bool
	missed     atomic.Int32 // looks in a row that found the question unanswered
}

const (
	beatEvery = 500 * time.Millisecond
	beatsLost = 10 // a loop that stands still is found after 5 to 5.5 s
)

// beat looks whether the loop has answered, and asks it again if it has. A loop that has ended is asked no more.
func (l *loop) beat() {
	h := &l.heartbeat
	if h.unanswered.Load() {
		h.missed.Store(min(h.missed.Load()+1, beatsLost))
		return
	}
	h.missed.Store(0)
	h.unanswered.Store(true)
	if !l.requests.do(func() { h.unanswered.Store(false) }) {
		h.unanswered.Store(false)
	}
}

// stands returns an error if the loop stands still.
func (l *loop) stands() error {
	if l.heartbeat.missed.Load() < beatsLost {
		return nil
	}
	if since := l.turns.present(); since > 0 {
		return fmt.Errorf("event loop %d stands still: its present turn has lasted %v", l.number, since.Round(time.Second))
	}
	return fmt.Errorf("event loop %d stands still: it waits, and does not wake up", l.number)
}

// turnTimes counts the turns of a loop by how long they took. The loop writes, anybody reads.
type turnTimes struct {
	buckets [len(traffic.TurnBuckets) + 1]atomic.Uint64
	sum     atomic.Int64 // nanoseconds
	longest atomic.Int64 // likewise
	began   atomic.Int64 // the present turn, by the clock of Now; 0 while the loop waits
}

// begin notes that a turn begins.
func (t *turnTimes) begin(now time.Duration) { t.began.Store(int64(now)) }

// end notes that the present turn is over. The loop is the only one that writes, so no two additions meet.
func (t *turnTimes) end(now time.Duration) {
	took := now - time.Duration(t.began.Load())
	t.began.Store(0)
	bucket := &t.buckets[bucketOf(took)]
	bucket.Store(bucket.Load() + 1)
	t.sum.Store(t.sum.Load() + int64(took))
	if int64(took) > t.longest.Load() {
		t.longest.Store(int64(took))
	}
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

// present is how long the present turn has lasted; 0 while the loop waits.
func (t *turnTimes) present() time.Duration {
	if began := t.began.Load(); began > 0 {
		return monotonic.Now() - time.Duration(began)
	}
	return 0
}

// beatUntilDrained looks after the heartbeats of all loops until the engine is drained.
func (e *Engine) beatUntilDrained(loops []*loop) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-e.drained:
			return
		case <-tick.C:
			for _, l := range loops {
				l.beat()
			}
		}
	}
}

// running returns the loops, without waiting for anybody: none before the first port was opened.
func (e *Engine) running() []*loop {
	if loops := e.loopsNow.Load(); loops != nil {
		return *loops
	}
	return nil
}

// Stalled returns an error that names a loop which stands still; nil when all turn.
func (e *Engine) Stalled() error {
	for _, l := range e.running() {
		if err := l.stands(); err != nil {
			return err
		}
	}
	return nil
}

// TurnTimes returns how long the turns of all loops took, present ones included in the longest.
func (e *Engine) TurnTimes() traffic.TurnTimes {
	var sum traffic.TurnTimes
	for _, l := range e.running() {
		for i := range l.turns.buckets {
			sum.Buckets[i] += l.turns.buckets[i].Load()
		}
		sum.Sum += time.Duration(l.turns.sum.Load())
		sum.Longest = max(sum.Longest, time.Duration(l.turns.longest.Load()), l.turns.present())
	}
	return sum
}
