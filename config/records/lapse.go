package records

import (
	"slices"
	"time"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// keepFor is how long the endpoints of a slice stay in force after its lease has ended, while the service has no others.
const keepFor = 5 * time.Minute

// returnFor is how long the endpoints of a slice stay in force beside others after the registry has lost the slice.
const returnFor = time.Minute

// maxLapses bounds how many slices of one service are remembered after the end of their leases.
const maxLapses = 64

// lapse remembers the slice of an entry that is over, in place of an earlier one of its key.
func (s *State) lapse(e *entry) {
	if e.good.slice.Service == "" {
		return
	}
	name, until := e.good.slice.ServiceName(), time.Now().Add(keepFor)
	j := s.staleLocked(name)
	j.lapses = slices.DeleteFunc(j.lapses, func(l lapse) bool { return l.key == e.key })
	if !e.leased || len(e.good.slice.Ready) == 0 {
		return
	}
	if len(j.lapses) == maxLapses {
		j.lapses = slices.Delete(j.lapses, 0, 1) // the oldest
	}
	j.lapses = append(j.lapses, lapse{key: e.key, slice: e.good.slice, names: e.good.names, until: until, sweep: s.sweep})
	s.lapsing[name] = true
	if s.nextLapse.IsZero() {
		s.nextLapse = until
	}
}

// WentBack notes that the list of the last merge was of a registry that has lost what it had: nobody has deleted the slices that the list
// lacks.
func (s *State) WentBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := time.Now().Add(returnFor)
	for name := range s.lapsing {
		j := s.joins[name]
		if j == nil {
			continue
		}
		for i := range j.lapses {
			if l := &j.lapses[i]; l.sweep == s.sweep {
				l.lost = lost
				s.staleLocked(name)
				if s.nextLapse.IsZero() || lost.Before(s.nextLapse) {
					s.nextLapse = lost
				}
			}
		}
	}
}

// ends returns when the next change comes to the lapse by itself.
func (l *lapse) ends(now time.Time) time.Time {
	if now.Before(l.lost) {
		return l.lost
	}
	return l.until
}

// expireLapses marks the services that have kept an endpoint for long enough.
func (s *State) expireLapses() {
	now := time.Now()
	if s.nextLapse.IsZero() || now.Before(s.nextLapse) {
		return
	}
	s.nextLapse = time.Time{}
	for name := range s.lapsing {
		j := s.joins[name]
		if j == nil || len(j.lapses) == 0 {
			delete(s.lapsing, name)
			continue
		}
		for i := range j.lapses {
			l := &j.lapses[i]
			if !l.lost.IsZero() && !now.Before(l.lost) {
				l.lost = time.Time{}
				s.staleLocked(name)
			}
			if !now.Before(l.until) {
				s.staleLocked(name)
			}
			if end := l.ends(now); s.nextLapse.IsZero() || end.Before(s.nextLapse) {
				s.nextLapse = end
			}
		}
	}
}

// unforgotten returns the slices of a service whose leases have ended, that have not been written again, and that are not yet forgotten;
// and those among them that the registry has lost.
func (j *join) unforgotten() (all, lost []lapse) {
	now := time.Now()
	j.lapses = slices.DeleteFunc(j.lapses, func(l lapse) bool {
		return !now.Before(l.until) || slices.ContainsFunc(j.entries, func(e *entry) bool { return e.key == l.key })
	})
	for _, l := range j.lapses {
		if now.Before(l.lost) {
			lost = append(lost, l)
		}
	}
	return j.lapses, lost
}

// letsLapse reports whether the record of a service wants endpoints gone at once when their leases end.
func (s *State) letsLapse(name registry.Name) bool {
	service := s.record(registry.SpecsPrefix, name).service
	return service != nil && service.Terms().LetLapse
}

// keep notes whether the endpoints of a service are in force though their leases have ended.
func (s *State) keep(name registry.Name, kept bool) {
	if kept == s.kept[name] {
		return
	}
	if kept {
		s.kept[name] = true
	} else {
		delete(s.kept, name)
	}
	note, ok := s.complaints.Allow(complaint{key: "leases of " + name.String()})
	switch {
	case !ok:
	case kept:
		glog.Warningf("endpoints of %v: the leases of all its instances have ended; the last ones stay in force for %v%s", name, keepFor, note)
	default:
		glog.Infof("endpoints of %v: those whose leases had ended are no longer in force%s", name, note)
	}
}
