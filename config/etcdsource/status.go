package etcdsource

import (
	"fmt"
	"time"

	"github.com/golang/glog"

	"kubeproxy/config"
	"kubeproxy/internal/lograte"
)

// Status tells how the source is doing. Any goroutine may ask.
func (s *Source) Status() config.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	st.Ends = make([]config.End, NumCauses)
	for cause, n := range s.ended {
		st.Ends[cause] = config.End{Cause: Cause(cause).String(), Count: n}
	}
	return st
}

// report edits the status.
func (s *Source) report(edit func(*config.Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(&s.status)
}

// trouble takes in that etcd cannot be reached or used now. What is known goes on being served. The
// first line about each cause is loud, repeats grow quiet: ten minutes of it take a dozen lines. An etcd
// that comes and goes all the time does not make it more than tens.
func (s *Source) trouble(err error) {
	cause, reason := causeOf(err), config.OneLine(err.Error())
	if advice := s.cfg.advice(cause, reason); advice != "" {
		reason += " (" + advice + ")"
	}
	now := time.Now()
	var st config.Status
	s.report(func(status *config.Status) {
		if status.Connected || status.Since.IsZero() {
			status.Connected, status.Since, status.Attempts = false, now, 0
		}
		status.Cause, status.Reason = cause.String(), reason
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
	s.report(func(st *config.Status) {
		if !st.Connected {
			if !st.Since.IsZero() {
				away = now.Sub(st.Since)
			}
			st.Connected, st.Since, st.Cause, st.Reason, st.Attempts = true, now, "", "", 0
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
