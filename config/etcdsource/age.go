package etcdsource

import (
	"time"

	"kubeproxy/config"
)

// A clock finds out up to which moment the Updates tell everything that etcd had committed. What the watch delivers does not say that: it
// may be seconds behind, in the network or in etcd. Two answers do. A progress report comes over the same stream, after all that came
// before it; so when it comes, everything from before its request has been applied. And a read gives a revision that etcd has reached;
// everything from before the read has been applied once the watch has come to that revision. The read is for an etcd that leaves requests
// for progress unanswered: it does while the watch is behind. Its fields belong to the goroutine in Run.
type clock struct {
	asked  time.Time // when the request for progress was sent that has no answer; zero when there is none
	readAt time.Time // when the read was sent that is under way, or was the last
	least  int64     // the revision that etcd had reached then, as the watch had told
	mark   int64     // the revision that it gave; 0 when the watch has come to it
}

// answered handles a progress report that answers a request. The source sends one request at a time.
func (x *session) answered() {
	if !x.asked.IsZero() {
		x.current(x.asked)
		x.asked = time.Time{}
	}
}

// found handles the answer to a read: etcd had reached this revision.
func (x *session) found(revision int64) {
	x.mark = revision
	x.reached()
}

// reached looks whether the watch has come to the revision that was read. A request for progress from before the read
// would have been answered by then: it was dropped.
func (x *session) reached() {
	if x.mark == 0 || x.heard < x.mark || x.stood.IsZero() {
		return
	}
	x.mark = 0
	x.current(x.readAt)
	if x.asked.Before(x.readAt) {
		x.asked = time.Time{}
	}
}

// current notes that everything that etcd had committed at a moment has been applied.
func (x *session) current(at time.Time) {
	if x.stood.IsZero() {
		return
	}
	x.log.Edit(func(st *config.Status) {
		if at.After(st.Current) {
			st.Current = at
		}
	})
}

// maxBehind is how late the session may be while its inbox is full. Then it ends, and the next one lists: a list has
// only the newest value of each key.
const maxBehind = 10 * time.Second

// behind reports whether a list would be faster than the watch. The time that the first list took does not count against the watch, nor does the
// time in which it was asked nothing.
func (x *session) behind() (late time.Duration, yes bool) {
	late = time.Since(x.Status().Current)
	return late, x.watch.inbox.blockedOnce() && !x.asked.IsZero() && min(late, time.Since(x.stood)) > maxBehind
}
