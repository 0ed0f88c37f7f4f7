package records

import (
	"cmp"
	"slices"

	"github.com/golang/glog"

	"kubeproxy/registry"
	"kubeproxy/registry/names"
)

// rejoinLocked marks the services that an entry had and has a slice of. It is called when the slice has changed, or the entry is over.
func (s *State) rejoinLocked(e *entry, was *registry.EndpointSlice) {
	if was != nil && was.Service != "" {
		s.staleLocked(was.ServiceName())
	}
	is := e.good.slice
	if e.over || is == nil || is.Service == "" {
		return
	}
	j := s.staleLocked(is.ServiceName())
	if was == nil || was.Service != is.Service {
		j.entries = append(j.entries, e)
	}
}

func (s *State) staleLocked(name registry.Name) *join {
	j := s.joins[name]
	if j == nil {
		j = new(join)
		s.joins[name] = j
	}
	if !j.stale {
		j.stale = true
		s.dirty = append(s.dirty, object{registry.KindEndpoints, name})
	}
	return j
}

// joined gives what the slices of a service add up to, nil when it has none, and whether that is only what has lapsed.
func (s *State) joined(name registry.Name) (sum *registry.Endpoints, lapsed bool) {
	j := s.joins[name]
	if j == nil {
		return nil, false
	}
	if !j.stale {
		return j.sum, j.lapsed
	}
	j.stale = false
	j.entries = slices.DeleteFunc(j.entries, func(e *entry) bool {
		return e.over || e.good.slice == nil || e.good.slice.ServiceName() != name
	})
	slices.SortFunc(j.entries, func(a, b *entry) int { return cmp.Compare(a.key, b.key) }) // nearly sorted already
	j.entries = slices.Compact(j.entries)
	parts := make([]*registry.EndpointSlice, len(j.entries))
	for i, e := range j.entries {
		parts[i] = e.good.slice
	}
	sum, warning := registry.JoinSlices(name, parts)
	if s.letsLapse(name) {
		j.lapses = nil
	}
	all, kept := j.unforgotten()
	entries := j.entries
	if j.lapsed = len(sum.ByPort) == 0 && len(all) > 0; j.lapsed {
		kept, entries, parts = all, nil, nil
	}
	if len(kept) > 0 {
		for _, l := range kept {
			parts = append(parts, l.slice)
		}
		sum, warning = registry.JoinSlices(name, parts)
	}
	j.names = joinNames(kept, entries)
	if len(j.entries) == 0 && len(j.lapses) == 0 {
		delete(s.joins, name)
		return nil, false
	}
	if !sum.Equal(j.sum) {
		j.sum = sum
	}
	if warning != "" && !j.warned {
		if note, ok := s.complaints.Allow(complaint{key: name.String()}); ok {
			glog.Warningf("endpoints of %v: %s%s", name, warning, note)
		}
	}
	j.warned = warning != ""
	return j.sum, j.lapsed
}

// joinNames gives the names of the endpoints in a sum of slices. One that is gone, and not in the sum, names none: the service may list its address again
// for another instance. What is there counts before what is kept.
func joinNames(kept []lapse, entries []*entry) names.Names {
	var all []names.Names
	for _, l := range kept {
		all = append(all, l.names)
	}
	for _, e := range entries {
		all = append(all, e.good.names)
	}
	if !slices.ContainsFunc(all, func(n names.Names) bool { return n != "" }) {
		return ""
	}
	return names.Join(all...)
}
