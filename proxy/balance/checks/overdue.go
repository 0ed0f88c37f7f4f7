package checks

import (
	"container/heap"
	"time"

	"github.com/golang/glog"

	"kubeproxy/internal/monotonic"
	"kubeproxy/registry"
)

// bound is how long after a result the target is overdue. The next result is due an interval and a timeout later at the latest, so the
// next check lacked a place or a descriptor for an interval. What is known of the target then stays in force where a client can be
// given another endpoint, and the kernel, which cannot do that, gives it no client.
func (t *Target) bound() time.Duration { return 2*t.Interval + t.Timeout }

// expire marks the targets that are overdue, and tells their watchers.
func (c *Checker) expire(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.expiring) > 0 && c.expiring[0].at <= now {
		t := heap.Pop(&c.expiring).(*entry).of
		c.setOverdueLocked(t, true)
		if note, ok := c.overdues.Allow(struct{}{}); ok {
			glog.Warningf("checks of %s over %s are overdue: no result for %v, so clients may be sent to an endpoint that hangs; %s%s",
				t.Addr, t.Question.Protocol, t.bound(), c.whyLocked(t), note)
		}
	}
}

// renewLocked notes that a check has ended with a result.
func (c *Checker) renewLocked(t *Target) {
	t.expires.at = monotonic.Now() + t.bound()
	if t.expires.index >= 0 {
		heap.Fix(&c.expiring, t.expires.index)
		return
	}
	heap.Push(&c.expiring, &t.expires)
	c.setOverdueLocked(t, false)
	if len(c.expiring) == len(c.targets) {
		if note, ok := c.inTime.Allow(struct{}{}); ok {
			glog.Infof("no check is overdue any more%s", note)
		}
	}
}

// setOverdueLocked sets the state, and tells the watchers.
func (c *Checker) setOverdueLocked(t *Target, overdue bool) {
	is := t.State()
	is.Overdue = overdue
	t.state.Store(&is)
	for w := range t.watchers {
		w.Noted(t.Question.Protocol)
	}
}

// whyLocked says why a target is overdue: its look-up hangs, or which service has the most checks under way.
func (c *Checker) whyLocked(t *Target) string {
	if t.lookUpLocked() {
		return "the look-up of its name has not ended"
	}
	most := c.busiestLocked()
	if most == nil {
		return "no check is under way: this node lacks descriptors"
	}
	return "most checks under way are of endpoints of " + most.service.Label()
}

// lookUpLocked reports whether the name of a target that is watched is being looked up: it neither waits, nor is it asked.
func (t *Target) lookUpLocked() bool { return t.due.index < 0 && t.share == nil }

// busiestLocked returns the share with the most checks under way; nil if there is none.
func (c *Checker) busiestLocked() (most *share) {
	for _, s := range c.shares.of {
		if most == nil || s.underWay > most.underWay {
			most = s
		}
	}
	return most
}

// An Overdue is what there is to say when checks are overdue.
type Overdue struct {
	Number  int           // targets that are overdue; 0: the rest is zero
	Longest registry.Addr // the one that has been so for longest,
	Of      registry.Name // and a service that it belongs to
	Busiest registry.Name // the service with the most checks under way; zero if there is none
	LookUp  bool          // the longest waits for the look-up of its name, and not for the busiest
}

// Overdue returns how many targets are overdue, and why. It looks at all targets if any is.
func (c *Checker) Overdue() (o Overdue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.Number = len(c.targets) - len(c.expiring)
	if o.Number == 0 {
		return o
	}
	var longest *Target
	for _, t := range c.targets {
		if t.expires.index < 0 && (longest == nil || t.expires.at < longest.expires.at) {
			longest = t
		}
	}
	o.Longest, o.LookUp = longest.Addr, longest.lookUpLocked()
	for w := range longest.watchers {
		o.Of = w.Service()
		break
	}
	if s := c.busiestLocked(); s != nil {
		o.Busiest = s.service
	}
	return o
}
