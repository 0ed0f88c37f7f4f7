package etcdsource

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// A Status says how a [Source] is doing. It is a copy: reading it needs no lock.
type Status struct {
	Ready     bool      // a first SET was sent: what is served is, or was, the registry
	Revision  int64     // of the last Update sent; 0 before the first
	ClusterID uint64    // of the etcd it came from
	Connected bool      // etcd answers
	Since     time.Time // for how long Connected has been what it is
	Reason    string    // why not, when not Connected: one line
	Heard     time.Time // when etcd last said anything
	Listed    time.Time // when the last full list was read

	Services  int // objects in force
	Endpoints int
	Rejected  int // keys whose newest value cannot be used, or that cannot be keys of records

	Sessions    uint64 // watch streams that came to stand, each with a list
	Resyncs     uint64 // full lists beside a standing watch
	Divergences uint64 // keys that a resync found different though the watch had said nothing
}

// Status tells how the source is doing. Any goroutine may ask.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// report edits the status.
func (s *Source) report(edit func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(&s.status)
}

// trouble takes in that etcd cannot be reached or used now. What is known goes on being served. The
// first line is loud, repeats grow quiet.
func (s *Source) trouble(err error) {
	reason := oneLine(err.Error())
	now := time.Now()
	var since time.Time
	s.report(func(st *Status) {
		if st.Connected || st.Since.IsZero() {
			st.Connected, st.Since = false, now
		}
		st.Reason, since = reason, st.Since
	})
	switch {
	case !s.warnings.allow(now):
		glog.V(2).Infof("etcd at %v unreachable: %s", s.cfg.Endpoints, reason)
	case !s.warned:
		s.warned = true
		glog.Warningf("etcd at %v unreachable: %s; trying again", s.cfg.Endpoints, reason)
	default:
		glog.Warningf("etcd at %v unreachable since %s (%v): %s", s.cfg.Endpoints,
			since.Format(time.TimeOnly), now.Sub(since).Round(time.Second), reason)
	}
}

// well takes in that etcd answers.
func (s *Source) well(news string) {
	now := time.Now()
	var gone time.Duration
	s.report(func(st *Status) {
		if !st.Connected {
			if !st.Since.IsZero() {
				gone = now.Sub(st.Since)
			}
			st.Connected, st.Since, st.Reason = true, now, ""
		}
		st.Heard = now
	})
	if gone == 0 {
		return
	}
	line := fmt.Sprintf("etcd answers again after %v%s", gone.Round(time.Millisecond), news)
	if s.warned {
		s.warned = false
		glog.Info(line)
	} else {
		glog.V(2).Info(line)
	}
}

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

// maxReason bounds an error from outside in a log line.
const maxReason = 400

// oneLine makes an error that repeats words from outside fit for a log (D47).
func oneLine(s string) string {
	s = strings.Map(func(c rune) rune {
		if !strconv.IsPrint(c) {
			return '?'
		}
		return c
	}, s)
	if len(s) <= maxReason {
		return s
	}
	return strings.ToValidUTF8(s[:maxReason], "") + "…"
}

// some shows the first few of a list of keys.
func some(keys []string) string {
	const few = 5
	var b strings.Builder
	for i, key := range keys[:min(len(keys), few)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(registry.Quote(key))
	}
	if n := len(keys) - few; n > 0 {
		fmt.Fprintf(&b, " and %d more", n)
	}
	return b.String()
}
