package apisource

import (
	"fmt"
	"slices"
	"time"

	"github.com/golang/glog"

	"kubeproxy/config"
	"kubeproxy/config/records"
	"kubeproxy/registry"
)

// Status reports how the source is doing. Any goroutine may ask.
func (s *Source) Status() config.Status { return s.log.Status() }

// trouble notes that the server cannot be reached or used now. What is known goes on being served.
func (s *Source) trouble(err error) {
	cause, reason := causeOf(err), config.OneLine(err.Error())
	if advice := s.advice(cause); advice != "" {
		reason += " (" + advice + ")"
	}
	s.log.Failed(int(cause), fmt.Sprintf(causes[cause].line, s.cfg.Server), reason)
}

// warnUnlisted says which server has refused a list, and what it said: one record that it cannot decode may be the reason, and
// only a reader of its etcd can find it.
func (s *Source) warnUnlisted(r *resource, err error) {
	if note, ok := s.unlisted.Allow(r.name); ok {
		glog.Warningf("API server at %s: %s; the watch goes on from version %v%s", s.cfg.Server, config.OneLine(err.Error()), r.version, note)
	}
}

// recovered ends an outage in the log.
func (s *Source) recovered(away time.Duration, loud bool) {
	s.log.Recovered(fmt.Sprintf("API server at %s answers again after %v: %s", s.cfg.Server, away.Round(time.Millisecond), s.versions()), loud)
}

// well notes that the server answers a session that stands.
func (x *session) well() {
	if x.stood.IsZero() {
		return
	}
	if away, loud := x.log.Reads(); away > 0 {
		x.recovered(away, loud)
	}
}

// stand begins what follows once all resources are known: the SET.
func (x *session) stand() {
	first := x.inForce == nil
	x.inForce = x.resources
	for key, r := range x.Source.resources { // of another version of the API
		if !slices.Contains(x.resources, r) {
			delete(x.Source.resources, key)
		}
	}
	x.log.Edit(func(st *config.Status) { st.Sessions++ })
	x.send(x.ctx, true, time.Now())
	for _, r := range x.resources {
		if r.degraded { // only its watch will tell whether the server can be read
			return
		}
	}
	x.lasts = x.stood.Add(maxBackoff)
	away, loud := x.log.Reads()
	switch {
	case first, x.log.IsUseless():
		x.log.ReportRead(fmt.Sprintf("API server read (%s, %s)", x.server(), x.versions()), "objects")
	case away > 0:
		x.recovered(away, loud)
	}
}

// server is what the server says it is.
func (x *session) server() string {
	if x.dialect.server == "" {
		return "API " + x.dialect.version
	}
	return registry.Quote(x.dialect.server) + ", API " + x.dialect.version
}

// A setback is that a resource went back to a version.
type setback struct {
	resource string
	to       version
}

// noteList writes down what a list has shown.
func (x *session) noteList(r *resource, l *listing, back bool, different, divergent records.Tally) {
	x.log.Edit(func(st *config.Status) {
		st.Divergences += uint64(divergent.N)
		if r.known {
			st.Resyncs++
		}
		if back {
			st.Setbacks++
		}
	})
	switch {
	case back:
		if note, ok := x.setbacks.Allow(setback{r.name, l.version}); ok {
			glog.Warningf("%s of the API server went back from version %v to %v (restored or wiped?); taking that for the truth: %s%s",
				r.name, r.atLeast, l.version, different.Differ(), note)
		}
	case divergent.N > 0:
		glog.Warningf("list of %s at version %v mended %d objects that the watch had not told of: %s", r.name, l.version, divergent.N, divergent)
	}
	glog.V(4).Infof("api list of %s @%v: %d objects, %d changed", r.name, l.version, l.list.Len(), different.N)
}
