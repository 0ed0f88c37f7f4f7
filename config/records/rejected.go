package records

import (
	"cmp"
	"errors"
	"strings"
	"unicode/utf8"

	"kubeproxy/config"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

func rejection(r reading, err error) *config.Rejection {
	rejected := &config.Rejection{Key: config.OneLine(r.key), Reason: config.OneLine(err.Error()), Revision: r.revision, Unread: r.err != nil, Encrypted: errors.Is(err, decode.ErrEncrypted)}
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
		s.rejected.all--
		s.rejected.drop(was)
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
	s.rejected.all++
	if !s.rejected.add(why) {
		why.Value = "" // only those that are listed are few
	}
}

// list puts a key that is rejected or odd on its list, if there is room. One that found no room at first gets it when the registry's keys are listed next.
func (s *State) list(e *entry) {
	if e.recordErr != nil {
		s.rejected.add(e.recordErr.bad)
		s.odd.add(e.recordErr.odd)
	}
}

// listMore lists keys for which others have made room.
func (s *State) listMore() {
	if !s.rejected.hasMore() && !s.odd.hasMore() {
		return
	}
	for _, e := range s.entries {
		s.list(e)
	}
}

// rejections gives the list as it is now, sorted by key, if it has changed since the last time.
func (s *State) rejections() (list []config.Rejection, changed bool) {
	return s.rejected.sorted(func(a, b config.Rejection) int { return cmp.Compare(a.Key, b.Key) })
}
