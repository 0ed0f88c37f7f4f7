package records

import (
	"fmt"
	"strings"

	"kubeproxy/registry"
)

// Merge makes the state equal to a complete list of one revision, but for keys that the watch has spoken of since the
// list was asked for: touched has the revision of its last event for each, and the newer of the two
// counts (D22: in v0.4 the list won, always). A source that only lists gives nil.
//
// It returns which keys were different from what was known. The watch has told of everything up to
// revision heard: what is different from before that it should have told, and has not. These
// divergences are returned too.
func (s *State) Merge(l List, revision int64, touched map[string]int64, heard int64) (different, divergent Tally) {
	decoded := l.decoder.all()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep++
	s.hushed = len(s.entries) == 0 && useless(decoded)
	defer func() { s.hushed = false }()
	differs := func(key string, since int64) {
		different.Add(key)
		if since <= heard {
			divergent.Add(key)
		}
	}
	listed := func(r reading) {
		e := s.entries[r.key]
		if touched[r.key] > revision {
			s.fillLocked(e, r)
			return
		}
		since, older := r.revision, false
		switch {
		case e == nil || e.created != r.created:
			since = min(r.created, r.revision) // lives may have other numbers than revisions, greater ones
		case r.revision < e.seen: // whatever its bytes are, that is another history
			since, older = 0, true
		}
		e, changed := s.takeLocked(e, r)
		if changed || older {
			differs(r.key, since)
		}
		e.sweep = s.sweep
	}
	known := l.known
	familiars := func(below string) { // as far as they come before a key
		for len(known) > 0 && (below == "" || known[0].entry.key < below) {
			f := known[0]
			known = known[1:]
			if e := f.entry; f.isNewest() { // as nearly all are; then the watch has not spoken of it either
				e.seen, e.leased, e.sweep = f.revision, f.leased, s.sweep
				continue
			}
			listed(f.reading())
		}
	}
	for i, v := range l.news {
		var d *decoding
		if decoded != nil {
			d = &decoded[i]
		}
		r := s.reading(v, d)
		familiars(r.key) // in the order of the list, in which the first few are named in the log
		listed(r)
	}
	familiars("")
	for key, e := range s.entries {
		if e.sweep == s.sweep || touched[key] > revision {
			continue
		}
		s.removeLocked(e)
		differs(key, revision) // deleted then at the latest
	}
	return different, divergent
}

// A Tally counts keys, and remembers the first few of them for a log line.
type Tally struct {
	N   int
	few []string
}

// Add counts a key.
func (t *Tally) Add(key string) {
	const few = 5
	if t.N++; len(t.few) < few {
		t.few = append(t.few, key)
	}
}

// String gives the few, and how many more there are.
func (t Tally) String() string {
	var b strings.Builder
	for i, key := range t.few {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(registry.Quote(key))
	}
	if n := t.N - len(t.few); n > 0 {
		fmt.Fprintf(&b, " and %d more", n)
	}
	return b.String()
}

// Differ says of the keys that they differ.
func (t Tally) Differ() string {
	switch t.N {
	case 0:
		return "no key differs"
	case 1:
		return "one key differs: " + t.String()
	}
	return fmt.Sprintf("%d keys differ: %v", t.N, t)
}
