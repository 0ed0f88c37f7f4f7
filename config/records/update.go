package records

import (
	"slices"
	"time"

	"kubeproxy/config"
	"kubeproxy/registry"
)

// Update takes out what has changed since the last time: one step for the Mux, after which the source equals the registry at
// a revision. A SET has everything instead. It is a step even when nothing changed: its revision is news.
func (s *State) Update(set bool, revision int64, received time.Time) registry.Update {
	u := registry.Update{Set: set, Revision: revision, Received: received}
	if set {
		u.Services, u.Endpoints = s.everything()
	} else {
		u.Services, u.Endpoints = s.changes()
	}
	return u
}

// Describe enters into a status what is in force, and what is not, as of now.
func (s *State) Describe(st *config.Status, now time.Time) {
	st.Loss = st.Loss.After(st.Services, len(s.services), now)
	st.Services, st.Endpoints, st.Kept = len(s.services), len(s.endpoints), len(s.kept)
	st.Rejected, st.Warned = s.rejected.all, s.odd.all
	if warnings, changed := s.warnings(); changed {
		st.Warnings = warnings
	}
	if elections, changed := s.describeElections(); changed {
		st.Elections = elections
	}
	if rejections, changed := s.rejections(); changed {
		st.Rejections = rejections
	}
}

// fewDirty is room that is kept for the next changes.
const fewDirty = 1024

// changes takes out what has changed since the last time.
func (s *State) changes() (services []registry.Change[registry.Service], endpoints []registry.Change[registry.Endpoints]) {
	s.expireLapses()
	s.follow()
	var n [2]int
	for _, o := range s.dirty {
		n[o.kind]++
	}
	services, endpoints = slices.Grow(services, n[registry.KindService]), slices.Grow(endpoints, n[registry.KindEndpoints])
	for _, o := range s.dirty {
		switch says := s.inForce(o); o.kind {
		case registry.KindService:
			services = change(services, s.services, o.name, says.service)
		case registry.KindEndpoints:
			endpoints = change(endpoints, s.endpoints, o.name, says.endpoints)
		}
	}
	if s.dirty = s.dirty[:0]; cap(s.dirty) > fewDirty {
		s.dirty = nil
	}
	return services, endpoints
}

// change adds to changes that name is now value, nil for gone, unless known says so already.
func change[T any](changes []registry.Change[T], known map[registry.Name]*T, name registry.Name, value *T) []registry.Change[T] {
	switch {
	case known[name] == value:
		return changes
	case value == nil:
		delete(known, name)
	default:
		known[name] = value
	}
	return append(changes, registry.Change[T]{Name: name, Value: value})
}

// inForce is what counts for an object. Endpoint slices of a service come before a record of its endpoints, which is made of the
// same for older readers. Slices whose leases have ended come after it.
func (s *State) inForce(o object) content {
	if o.kind == registry.KindEndpoints {
		return s.choose(o.name, s.listedFor(o.name))
	}
	return s.record(registry.SpecsPrefix, o.name)
}

// listedFor is what the records list as the endpoints of a service.
func (s *State) listedFor(name registry.Name) content {
	sum, lapsed := s.joined(name)
	record := s.record(registry.EndpointsPrefix, name)
	kept := lapsed && (record.endpoints == nil || len(record.endpoints.ByPort) == 0)
	s.keep(name, kept)
	if sum == nil || lapsed && !kept {
		return record
	}
	return content{endpoints: sum, names: s.joins[name].names}
}

// everything is the whole state as a SET lists it. Changes not taken yet are taken.
func (s *State) everything() ([]registry.Change[registry.Service], []registry.Change[registry.Endpoints]) {
	s.changes()
	return all(s.services), all(s.endpoints)
}

func all[T any](objects map[registry.Name]*T) []registry.Change[T] {
	changes := make([]registry.Change[T], 0, len(objects))
	for name, value := range objects {
		changes = append(changes, registry.Change[T]{Name: name, Value: value})
	}
	return changes
}
