package records

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"kubeproxy/config"
	"kubeproxy/registry"
)

func rejection(r reading, err error) *config.Rejection {
	rejected := &config.Rejection{Key: config.OneLine(r.key), Reason: config.OneLine(err.Error()), Revision: r.revision}
	switch {
	case strings.HasPrefix(r.key, registry.EndpointsPrefix):
		rejected.Kind = registry.KindEndpoints
	case strings.HasPrefix(r.key, registry.EndpointSlicesPrefix):
		rejected.Kind = registry.KindEndpointSlice
	}
	if len(r.value) <= config.MaxRejectedValue && utf8.Valid(r.value) {
		rejected.Value = string(r.value)
	}
	return rejected
}

// markLocked notes why the newest value of a key cannot be used, nil that it can.
func (s *State) markLocked(e *entry, why *config.Rejection) {
	was := e.bad()
	if was != nil {
		s.invalid--
		if i := slices.Index(s.listed, was); i >= 0 {
			s.listed, s.relisted = slices.Delete(s.listed, i, i+1), true
		}
		e.recordErr.bad = nil
	}
	if why == nil {
		return
	}
	t := e.noteError()
	if was == nil {
		t.goodAt = e.seen // which was good, or is 0
	}
	t.bad = why
	s.invalid++
	if !s.list(e) {
		why.Value = "" // only those that are listed are few
	}
}

// list puts a rejected key on the list, if there is room, and reports whether it did. As every list of the registry's keys passes
// here, one that found no room at first gets it later.
func (s *State) list(e *entry) bool {
	bad := e.bad()
	if bad == nil || len(s.listed) >= config.MaxRejections || slices.Contains(s.listed, bad) {
		return false
	}
	s.listed, s.relisted = append(s.listed, bad), true
	return true
}

// rejections gives the list as it is now, sorted by key, if it has changed since the last time.
func (s *State) rejections() (list []config.Rejection, changed bool) {
	if !s.relisted {
		return nil, false
	}
	s.relisted = false
	for _, rejected := range s.listed {
		list = append(list, *rejected)
	}
	slices.SortFunc(list, func(a, b config.Rejection) int { return cmp.Compare(a.Key, b.Key) })
	return list, true
}
