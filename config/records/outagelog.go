package records

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/config"
	"kubeproxy/internal/lograte"
	"kubeproxy/registry"
)

// An OutageLog is the status of one source, and writes the story of each of its outages to the log: when it began and why, ever more rarely
// that it goes on, and what has changed when it is over. Make it with [NewOutageLog]. Any goroutine may use [OutageLog.Status] and
// [OutageLog.Edit]; the rest is for the goroutine that runs the source.
//
// An outage that begins is loud, repeats grow quiet: ten minutes of one take a dozen lines. A place that comes and goes all the
// time does not make it more than tens. What is not loud is logged at V(4).
type OutageLog struct {
	mu     sync.Mutex    // guards the fields below
	status config.Status // without Ends
	ends   []config.End  // by cause

	lasting time.Duration // how long a session has to stand
	stands  time.Time     // since when the present one does; zero: there is none
	brief   int           // sessions in a row that did not last

	outages  *lograte.Limiter[time.Time]  // lines about outages, by their beginning
	warnings []*lograte.Limiter[struct{}] // lines about the present outage, by cause
	loud     bool                         // the present outage was made known
}

// maxBrief is how many sessions in a row may be brief before the next one has to last.
const maxBrief = 2

// NewOutageLog returns a log for a source whose outages have one of these causes: short words, in an order that never changes. Sessions that
// end sooner than lasting are brief. After two brief ones in a row the source counts as unable to read until a session has lasted: a
// server that ends each session at once is in one outage, and not in many.
func NewOutageLog(lasting time.Duration, causes ...string) *OutageLog {
	l := &OutageLog{lasting: lasting, outages: lograte.Lasting[time.Time](5), warnings: make([]*lograte.Limiter[struct{}], len(causes))}
	for i, cause := range causes {
		l.ends = append(l.ends, config.End{Cause: cause})
		l.warnings[i] = lograte.Lasting[struct{}](1)
	}
	return l
}

// Status returns a copy of the status.
func (l *OutageLog) Status() config.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.status
	st.Ends = slices.Clone(l.ends)
	return st
}

// Edit changes the status.
func (l *OutageLog) Edit(edit func(*config.Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	edit(&l.status)
}

// Send sends one Update with all that has changed in a state since the last, or with everything if it is a SET, and notes in the status
// what is in force. If ctx ends first, nothing is noted. A state belongs to one goroutine, which is the one to call Send.
func (l *OutageLog) Send(ctx context.Context, out chan<- registry.Update, state *State, set bool, revision int64, received time.Time) {
	u := state.Update(set, revision, received)
	select {
	case out <- u:
	case <-ctx.Done():
		return
	}
	l.Edit(func(st *config.Status) {
		st.Ready, st.Revision = true, revision
		state.Describe(st, received)
	})
}

// End counts a session that is over, by its cause, and reports whether it had lasted. Only then may the next one begin without a
// longer pause than this one did.
func (l *OutageLog) End(cause int) (lasted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends[cause].Count++
	if lasted = !l.stands.IsZero() && time.Since(l.stands) >= l.lasting; lasted {
		l.brief = 0
	} else {
		l.brief++
	}
	l.stands = time.Time{}
	return lasted
}

// Failed notes that the source cannot read now, for a cause and for a reason of one line. The log line begins with what.
func (l *OutageLog) Failed(cause int, what, reason string) {
	now := time.Now()
	var st config.Status
	l.Edit(func(status *config.Status) {
		if status.Connected || status.Since.IsZero() {
			status.Connected, status.Since, status.Attempts = false, now, 0
		}
		status.Cause, status.Reason = l.ends[cause].Cause, reason
		status.Attempts++
		st = *status
	})
	line := what + ": " + reason
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
		_, loud = l.warnings[cause].Allow(struct{}{})
	} else if note, loud = l.outages.Allow(now); loud {
		l.warnings[cause] = lograte.Lasting[struct{}](1) // another outage begins with a short window
		l.warnings[cause].Allow(struct{}{})
	}
	if loud {
		l.loud = true
		glog.Warning(line + note)
	} else {
		glog.V(4).Info(line)
	}
}

// Reads notes that the source can read. It returns for how long it could not, 0 if it could all the time, and whether that was made
// known. After brief sessions the outage goes on until the present one has lasted.
func (l *OutageLog) Reads() (away time.Duration, loud bool) {
	now, over := time.Now(), true
	l.Edit(func(st *config.Status) {
		st.Heard = now
		if l.stands.IsZero() {
			l.stands = now
		}
		if st.Connected {
			return
		}
		if over = l.brief < maxBrief || now.Sub(l.stands) >= l.lasting; !over {
			return
		}
		if !st.Since.IsZero() {
			away = now.Sub(st.Since)
		}
		st.Connected, st.Since, st.Cause, st.Reason, st.Attempts = true, now, "", "", 0
	})
	if !over {
		return 0, false
	}
	loud, l.loud = l.loud, false
	return away, loud
}

// IsUseless reports whether what was read has rejected keys, and nothing that can be used.
func (l *OutageLog) IsUseless() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status.Rejected > 0 && l.status.Services+l.status.Endpoints == 0
}

// ReportRead logs what a source has read in full: "etcd read at revision 5", say, of units that are "keys". When none of them can be used
// it is an error, for the node is not ready then.
func (l *OutageLog) ReportRead(what, units string) {
	st := l.Status()
	if l.IsUseless() {
		var example string
		if len(st.Rejections) > 0 { // the list may lag behind the count
			example = fmt.Sprintf(", for example %s: %s", registry.Quote(st.Rejections[0].Key), st.Rejections[0].Reason)
		}
		glog.Errorf("%s: none of the %d %s can be used%s; not ready until one can", what, st.Rejected, units, example)
		return
	}
	line := fmt.Sprintf("%s: %d services, %d endpoints", what, st.Services, st.Endpoints)
	if st.Rejected > 0 {
		line += fmt.Sprintf("; %d %s cannot be used", st.Rejected, units)
	}
	glog.Info(line)
}

// Recovered ends an outage in the log, loudly if it began so.
func (l *OutageLog) Recovered(line string, loud bool) {
	if loud {
		glog.Info(line)
	} else {
		glog.V(4).Info(line)
	}
}

// Stopped notes that the source was told to stop.
func (l *OutageLog) Stopped() {
	l.Edit(func(st *config.Status) {
		st.Connected, st.Since, st.Cause, st.Reason = false, time.Now(), "", "stopped"
	})
}
