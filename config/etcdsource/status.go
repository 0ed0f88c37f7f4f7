package etcdsource

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/golang/glog"

	"kubeproxy/internal/lograte"
	"kubeproxy/registry"
)

// A Status says how a [Source] is doing. It is a copy: reading it needs no lock. Nobody may edit the
// lists in it.
type Status struct {
	Ready     bool      // a first SET was sent: what is served is, or was, the registry
	Revision  int64     // of the last Update sent; 0 before the first
	ClusterID uint64    // of the etcd it came from
	Connected bool      // etcd answers
	Since     time.Time // for how long Connected has been what it is
	Cause     Cause     // why not, when not Connected
	Reason    string    // the same in one line
	Attempts  int       // how often etcd was tried since then, in vain
	Heard     time.Time // when etcd last said anything
	Current   time.Time // everything that etcd had committed by then has been sent; zero before the first SET
	Listed    time.Time // when the last full list was read

	Services   int // objects in force
	Endpoints  int
	Rejected   int         // keys whose newest value cannot be used, or that cannot be keys of records
	Rejections []Rejection // these keys, at most [MaxRejections] of them, sorted

	Sessions    uint64            // watch streams that came to stand, each with a list
	Ended       [NumCauses]uint64 // those of them that are over, by cause
	Resyncs     uint64            // full lists beside a standing watch
	Divergences uint64            // keys that a resync found different though the watch had said nothing
	Setbacks    uint64            // times that etcd was found to have lost what it had, or to be another one
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
// first line about each cause is loud, repeats grow quiet: ten minutes of it take a dozen lines. An etcd
// that comes and goes all the time does not make it more than tens.
func (s *Source) trouble(err error) {
	cause, reason := causeOf(err), oneLine(err.Error())
	if advice := s.cfg.advice(cause, reason); advice != "" {
		reason += " (" + advice + ")"
	}
	now := time.Now()
	var st Status
	s.report(func(status *Status) {
		if status.Connected || status.Since.IsZero() {
			status.Connected, status.Since, status.Attempts = false, now, 0
		}
		status.Cause, status.Reason = cause, reason
		status.Attempts++
		st = *status
	})
	line := fmt.Sprintf(causes[cause].line, s.cfg.Endpoints) + ": " + reason
	if st.Attempts > 1 {
		line += fmt.Sprintf("; without it since %s (%v, %d attempts)", st.Since.Format(time.TimeOnly), now.Sub(st.Since).Round(time.Second), st.Attempts)
	}
	if st.Ready {
		line += fmt.Sprintf("; what was known at revision %d stays in force, trying again", st.Revision)
	} else {
		line += "; nothing is known yet, trying again"
	}
	var note string
	var loud bool
	if st.Attempts > 1 {
		_, loud = s.warnings[cause].Allow(struct{}{})
	} else if note, loud = s.outages.Allow(now); loud {
		s.warnings[cause] = repeats() // another outage begins with a short window
		s.warnings[cause].Allow(struct{}{})
	}
	if loud {
		s.warned = true
		glog.Warning(line + note)
	} else {
		glog.V(4).Info(line)
	}
}

// The log windows of what repeats: they double from the first to the last.
const (
	firstWindow = 10 * time.Second
	lastWindow  = 5 * time.Minute
)

// repeats limits lines that all say the same.
func repeats() *lograte.Limiter[struct{}] {
	return &lograte.Limiter[struct{}]{Lines: 1, First: firstWindow, Last: lastWindow}
}

// maxOutages is how many outages, or setbacks, have their lines in a window.
const maxOutages = 5

// connected takes in that etcd answers, and tells for how long it has not; 0 if it has all the time.
func (s *Source) connected() (away time.Duration, told bool) {
	now := time.Now()
	s.report(func(st *Status) {
		if !st.Connected {
			if !st.Since.IsZero() {
				away = now.Sub(st.Since)
			}
			st.Connected, st.Since, st.Reason, st.Attempts = true, now, "", 0
		}
		st.Heard = now
	})
	told, s.warned = s.warned, false
	return away, told
}

// recovered ends an outage in the log, loudly if it began so.
func (s *Source) recovered(away time.Duration, told bool, news string) {
	line := fmt.Sprintf("etcd at %v answers again after %v: %s", s.cfg.Endpoints, away.Round(time.Millisecond), news)
	if told {
		glog.Info(line)
	} else {
		glog.V(4).Info(line)
	}
}

// well takes in that etcd answers a session that stands.
func (x *session) well() {
	if away, told := x.connected(); away > 0 {
		x.recovered(away, told, fmt.Sprintf("the watch has outlived it, at revision %d", x.heard))
	}
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

// A tally counts keys, and remembers the first few of them for a log line.
type tally struct {
	n   int
	few []string
}

func (t *tally) add(key string) {
	const few = 5
	if t.n++; len(t.few) < few {
		t.few = append(t.few, key)
	}
}

// String gives the few, and how many more there are.
func (t tally) String() string {
	var b strings.Builder
	for i, key := range t.few {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(registry.Quote(key))
	}
	if n := t.n - len(t.few); n > 0 {
		fmt.Fprintf(&b, " and %d more", n)
	}
	return b.String()
}

// differ says it of the keys.
func (t tally) differ() string {
	switch t.n {
	case 0:
		return "no key differs"
	case 1:
		return "one key differs: " + t.String()
	}
	return fmt.Sprintf("%d keys differ: %v", t.n, t)
}
