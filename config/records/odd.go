package records

import (
	"cmp"

	"kubeproxy/config"
	"kubeproxy/registry"
)

// noteOddLocked notes what is odd in the newest value of a key, which is in force; no warnings: nothing.
func (s *State) noteOddLocked(e *entry, r reading, warnings []registry.Warning) {
	if e.recordErr != nil && e.recordErr.odd != nil {
		s.odd.all--
		s.odd.drop(e.recordErr.odd)
		e.recordErr.odd = nil
	}
	if len(warnings) == 0 {
		return
	}
	e.noteError().odd = &config.Warning{Key: config.OneLine(r.key), Text: config.OneLine(string(warnings[0])), More: len(warnings) - 1, Revision: r.revision}
	s.odd.all++
}

// warnings gives the list of odd records as it is now, sorted by key, if it has changed since the last time.
func (s *State) warnings() (list []config.Warning, changed bool) {
	return s.odd.sorted(func(a, b config.Warning) int { return cmp.Compare(a.Key, b.Key) })
}
