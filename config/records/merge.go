package records

import (
	"fmt"
	"slices"
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
	s.summarised = !s.part && len(s.entries) == 0 && useless(decoded)
	defer func() { s.summarised = false }()
	m := merge{State: s, revision: revision, touched: touched, heard: heard, known: l.known}
	for i, v := range l.news {
		var d *decoding
		if decoded != nil {
			d = &decoded[i]
		}
		r := s.reading(v, d)
		m.unchanged(r.key) // in the order of the list, in which the first few are named in the log
		m.listed(r)
	}
	m.unchanged("")
	for key, e := range s.entries {
		if e.sweep == s.sweep || touched[key] > revision {
			continue
		}
		s.removeLocked(e)
		m.differs(key, revision) // deleted then at the latest
	}
	s.listMore()
	for _, h := range l.holders {
		s.mergeHolders(h, revision, touched, m.differs)
	}
	return m.different, m.divergent
}

// A merge is one call of Merge, under the lock of the state.
type merge struct {
	*State
	revision, heard      int64
	touched              map[string]int64
	known                []unchangedVersion // of the list, those that are still to be merged
	different, divergent Tally
}

// differs notes a key whose value is not what was known, and has been so since a revision.
func (m *merge) differs(key string, since int64) {
	m.different.Add(key)
	if since <= m.heard {
		m.divergent.Add(key)
	}
}

// listed handles one value of the list.
func (m *merge) listed(r reading) {
	e := m.entries[r.key]
	if m.touched[r.key] > m.revision {
		m.fillLocked(e, r)
		return
	}
	since, older := r.revision, false
	switch {
	case e == nil || e.created != r.created:
		since = min(r.created, r.revision) // lives may have other numbers than revisions, greater ones
	case r.revision < e.seen: // whatever its bytes are, that is another history
		since, older = 0, true
	}
	e, changed := m.takeLocked(e, r)
	if changed || older {
		m.differs(r.key, since)
	}
	e.sweep = m.sweep
}

// unchanged handles the values that are known already, as far as they come before a key; "" stands for all.
func (m *merge) unchanged(below string) {
	for len(m.known) > 0 && (below == "" || m.known[0].entry.key < below) {
		f := m.known[0]
		m.known = m.known[1:]
		if e := f.entry; f.isNewest() { // as nearly all are; then the watch has not spoken of it either
			e.seen, e.leased, e.sweep = f.revision, f.leased, m.sweep
			continue
		}
		m.listed(f.reading())
	}
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

// AddAll counts the keys of another tally. One that both remember counts once.
func (t *Tally) AddAll(more Tally) {
	for _, key := range more.few {
		if more.N--; !slices.Contains(t.few, key) {
			t.Add(key)
		}
	}
	t.N += more.N
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
