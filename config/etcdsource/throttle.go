package etcdsource

import (
	"time"

	"github.com/golang/glog"
)

// A throttle lets the first of a row of log lines pass and the others at intervals that double. A row
// has ended when the next line, which could have passed by then, did not come for an interval.
type throttle struct {
	interval time.Duration
	next     time.Time
}

// The intervals between repeated warnings.
const (
	firstRepeat = 10 * time.Second
	lastRepeat  = 5 * time.Minute
)

func (t *throttle) allow(now time.Time) bool {
	if now.Before(t.next) {
		return false
	}
	if now.Sub(t.next) > t.interval {
		t.interval = 0
	}
	t.interval = min(max(2*t.interval, firstRepeat), lastRepeat)
	t.next = now.Add(t.interval)
	return true
}

// A ration lets some log lines pass, and holds back what is more: whoever writes nonsense a thousand
// times a second shall not fill a disk here. Its pauses grow like a throttle's.
type ration struct {
	what     string // the lines are about
	size     int    // how many pass between two pauses
	left     int
	withheld int
	pauses   throttle
}

func (q *ration) allow(now time.Time) bool {
	if q.left == 0 {
		if !q.pauses.allow(now) {
			if q.withheld++; q.withheld == 1 {
				glog.Warningf("lines about %s are held back for %v", q.what, q.pauses.next.Sub(now).Round(time.Second))
			}
			return false
		}
		q.left = q.size
		if q.withheld > 0 {
			glog.Warningf("%d lines about %s were held back", q.withheld, q.what)
			q.withheld = 0
		}
	}
	q.left--
	return true
}
