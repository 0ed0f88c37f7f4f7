package records

import (
	"slices"
	"time"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// keepFor is how long the endpoints of a slice stay in force after its lease has ended, while the service has no others.
const keepFor = 5 * time.Minute

// maxLapses bounds how many slices of one service are remembered after the end of their leases.
const maxLapses = 64

// A lapse is a slice that was deleted while it belonged to a lease and had ready endpoints. Most often its lease has ended, and that
// says little of the endpoints: when a registry is away for longer than its leases, all of them end at once, however well the instances
// are. (Who takes an instance out of service says first that it is not ready.) So a service that has lost all its endpoints keeps these.
type lapse struct {
	key   string
	slice *registry.EndpointSlice
	until time.Time
}

// lapse remembers the slice of an entry that is over.
func (s *State) lapse(e *entry) {
	if !e.leased || len(e.good.slice.Ready) == 0 {
		return
	}
	name, until := e.good.slice.ServiceName(), time.Now().Add(keepFor)
	j := s.staleLocked(name)
	j.lapses = slices.DeleteFunc(j.lapses, func(l lapse) bool { return l.key == e.key })
	if len(j.lapses) == maxLapses {
		j.lapses = slices.Delete(j.lapses, 0, 1) // the oldest
	}
	j.lapses = append(j.lapses, lapse{e.key, e.good.slice, until})
	s.lapsing[name] = true
	if s.nextLapse.IsZero() {
		s.nextLapse = until
	}
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
		first := j.lapses[0].until // they are in the order of their ends
		if !now.Before(first) {
			s.staleLocked(name)
		}
		if s.nextLapse.IsZero() || first.Before(s.nextLapse) {
			s.nextLapse = first
		}
	}
}

// unforgotten returns the slices of a service whose leases have ended, that have not been written again, and that are not yet forgotten.
func (j *join) unforgotten() (parts []*registry.EndpointSlice) {
	now := time.Now()
	j.lapses = slices.DeleteFunc(j.lapses, func(l lapse) bool {
		return !now.Before(l.until) || slices.ContainsFunc(j.entries, func(e *entry) bool { return e.key == l.key })
	})
	for _, l := range j.lapses {
		parts = append(parts, l.slice)
	}
	return parts
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
