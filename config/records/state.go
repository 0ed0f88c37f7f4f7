package records

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/golang/glog"

	"kubeproxy/internal/lograte"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// sum gives the hash of a value's bytes, or of why there are none.
func (s *State) sum(v Version) uint64 {
	if v.Err != nil {
		return ^maphash.String(s.seed, v.Err.Error())
	}
	return maphash.Bytes(s.seed, v.Value)
}

// key gives the key as a string. There is one already if it is known, for a map finds it by its bytes, or if the value
// was decoded.
func (s *State) key(v Version, decoded *decoding) string {
	if e := s.entries[string(v.Key)]; e != nil {
		return e.key
	}
	if decoded != nil {
		return decoded.key
	}
	return string(v.Key)
}

func (s *State) reading(v Version, decoded *decoding) reading {
	r := reading{key: s.key(v, decoded), created: v.Created, revision: v.Revision, leased: v.Leased, sum: s.sum(v), decoded: decoded, value: v.Value, err: v.Err}
	if e := s.entries[r.key]; e != nil && r.created == 0 { // as far as is known, that life goes on
		r.created = e.created
	}
	return r
}

// says gives what a version says, decoded now if it was not before.
func (s *State) says(r *reading) decoding {
	switch {
	case r.decoded != nil:
		return *r.decoded
	case r.known:
		return decoding{content: r.content}
	}
	return decodeValue(s.decoder, r.key, r.value, r.err)
}

// A decoding is what a value says, or why it says nothing.
type decoding struct {
	key      string
	content  content
	warnings []registry.Warning
	err      error
}

// decodeValue reads a value; err is why there is none.
func decodeValue(decoder decode.Decoder, key string, value []byte, err error) decoding {
	if err != nil {
		return decoding{key: key, err: err}
	}
	d := decoding{key: key}
	var record decode.Record
	record, d.warnings, d.err = decoder.Decode(key, value)
	if record.NoNodePort > 0 {
		glog.V(3).Infof("service %v: ports that have no nodePort are not offered: %d", record.Key.Name, record.NoNodePort)
	}
	d.content = content{record.Service, record.Endpoints, record.Slice, record.Names}
	return d
}

// maxComplaints is how many lines about bad values pass in a window.
const maxComplaints = 20

// A complaint is what lines about a bad value are about.
type complaint struct {
	key string
	sum uint64 // of the value; 0 when the key itself is bad
}

// maxWarnings is how many warnings about one value are logged, each in a line of its own. A line counts the others.
const maxWarnings = 10

// maxTold bounds how many values of one key are remembered for not being logged again.
const maxTold = 8

// New returns a state in which nothing is known. Records will be decoded by decoder.
func New(decoder decode.Decoder) *State {
	return &State{
		decoder:   decoder,
		entries:   make(map[string]*entry),
		seed:      maphash.MakeSeed(),
		services:  make(map[registry.Name]*registry.Service),
		endpoints: make(map[registry.Name]*registry.Endpoints),
		joins:     make(map[registry.Name]*join),
		follows:   make(map[registry.Name]string),
		elections: make(map[string]*election),
		kept:      make(map[registry.Name]bool),
		lapsing:   make(map[registry.Name]bool),

		complaints: lograte.Lasting[complaint](maxComplaints),
	}
}

// NewPart is New for a source that has a state for each kind of record: that no key of one can be used does not say that the source has none, so each has
// its line in the log.
func NewPart(decoder decode.Decoder) *State {
	s := New(decoder)
	s.part = true
	return s
}

// Len is the number of keys, usable or not.
func (s *State) Len() int { return len(s.entries) }

// Put sets the newest value of a key, and reports whether it is another value or another life than
// was known.
//
// The bytes decide that, by their hash. The revision cannot: a registry whose data were wiped can come
// back with the same revisions and other values. Equal bytes cost no decoding, so to list a
// registry that has not changed is cheap.
func (s *State) Put(v Version) (different bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.reading(v, nil)
	_, different = s.takeLocked(s.entries[r.key], r)
	return different
}

// takeLocked is Put of a version that may have been decoded before. It is given the entry of its key, nil for none,
// and returns it.
func (s *State) takeLocked(e *entry, r reading) (_ *entry, different bool) {
	if e == nil || e.created != r.created {
		e, different = s.createLocked(r, e), true
	} else {
		different = e.sum != r.sum
	}
	if different && !e.foreign {
		s.readLocked(e, r)
	}
	e.sum, e.seen, e.leased = r.sum, r.revision, r.leased
	s.list(e)
	if e.bad() != nil && e.recordErr.goodAt > r.revision { // of a history that the registry has lost, for it went back
		e.recordErr.goodAt = 0
		s.replaceLocked(e, content{})
	}
	return e, different
}

// readLocked decodes a new value. One that does not decode hurts only itself: the last good version
// of its key stays in force (D17, D18).
func (s *State) readLocked(e *entry, r reading) {
	said := s.says(&r)
	if said.err != nil {
		s.markLocked(e, rejection(r, said.err))
		s.noteOddLocked(e, r, nil)
	} else {
		s.markLocked(e, nil)
		s.noteOddLocked(e, r, said.warnings)
		s.useLocked(e, said.content, r)
		if e.recordErr != nil && e.recordErr.blamed {
			e.recordErr.blamed = false
			glog.Infof("key %s can be used again, since revision %d", registry.Quote(r.key), r.revision)
		}
	}
	if (said.err == nil && len(said.warnings) == 0) || !e.news(r.sum) || s.summarised {
		return
	}
	key := registry.Quote(r.key)
	if errors.Is(said.err, decode.ErrEncrypted) { // as all of its kind are
		if !s.encrypted {
			glog.Errorf("values are %v; the first is that of key %s, at revision %d", said.err, key, r.revision)
		}
		s.encrypted = true
		return
	}
	note, ok := s.complaints.Allow(complaint{e.key, r.sum})
	if !ok {
		return
	}
	if said.err != nil {
		e.recordErr.blamed = true
		glog.Errorf("bad value of key %s at revision %d: %v; %s%s", key, r.revision, said.err, e.remains(), note)
		note = ""
	}
	for _, w := range said.warnings[:min(len(said.warnings), maxWarnings)] {
		glog.Warningf("key %s: %s%s", key, w, note)
		note = ""
	}
	if more := len(said.warnings) - maxWarnings; more > 0 {
		glog.Warningf("key %s: %d more warnings", key, more)
	}
}

// remains says what is in force in place of a bad value.
func (e *entry) remains() string {
	if e.good == (content{}) {
		return "nothing is known in its place"
	}
	return fmt.Sprintf("its value of revision %d stays in force", e.goodAt())
}

// createLocked begins a life of a key. Nothing of an earlier one counts any more, except that what was said
// of its values need not be said again.
func (s *State) createLocked(r reading, old *entry) *entry {
	e := &entry{key: r.key, created: r.created}
	if old != nil {
		s.forgetLocked(old)
		e.key, e.sweep = old.key, old.sweep
		if old.recordErr != nil {
			e.recordErr = &recordError{told: old.recordErr.told, blamed: old.recordErr.blamed}
		}
	}
	if _, err := registry.ParseKey(r.key); err != nil {
		e.foreign = true
		switch {
		case errors.Is(err, registry.ErrForeign):
			glog.V(4).Infof("ignored key %s: %v", registry.Quote(r.key), err)
		default:
			if e.news(0) && !s.summarised {
				if note, ok := s.complaints.Allow(complaint{key: e.key}); ok {
					glog.Errorf("bad key %s: %v%s", registry.Quote(r.key), err, note)
				}
			}
			s.markLocked(e, rejection(r, err))
		}
	}
	s.entries[e.key] = e
	return e
}

// useLocked makes what a version says the good one of its key.
func (s *State) useLocked(e *entry, says content, r reading) {
	if e.bad() != nil {
		e.recordErr.goodAt = r.revision
	}
	if says.service != nil && says.service.Created != r.created {
		says.service.Created = r.created // it is new, and not shared yet
	}
	if e.good != (content{}) && e.good.equal(says) {
		return // written otherwise, saying the same
	}
	if says.service != nil && says.service.Since == nil { // it is new, as above
		says.service.Date(e.good.service, r.revision)
	}
	s.replaceLocked(e, says)
}

// replaceLocked makes says what an entry has in force, and marks what may differ by it.
func (s *State) replaceLocked(e *entry, says content) {
	was := e.good
	e.good = says
	if was.slice != nil || says.slice != nil {
		s.rejoinLocked(e, was.slice)
		return
	}
	s.dirtyLocked(e)
}

// dirtyLocked marks what an entry speaks of, and the endpoints of a service that may let them lapse, or not any more.
func (s *State) dirtyLocked(e *entry) {
	o := e.object()
	if s.dirty = append(s.dirty, o); o.kind == registry.KindService {
		if j := s.joins[o.name]; j != nil && len(j.lapses) > 0 {
			s.staleLocked(o.name)
		}
	}
}

// fillLocked adds an older value than the newest known. It counts where the newest value is a bad one and
// the last good version, if there is one, is older still.
func (s *State) fillLocked(e *entry, r reading) {
	if e == nil || e.foreign || e.created != r.created || e.bad() == nil || r.revision <= e.goodAt() {
		return
	}
	if said := s.says(&r); said.err == nil {
		s.useLocked(e, said.content, r)
	}
}

// Fill handles a value that a newer one overtook before it was decoded. It counts only while the newer one is bad.
func (s *State) Fill(v Version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[string(v.Key)]; e != nil && v.Revision < e.seen {
		s.fillLocked(e, s.reading(v, nil))
	}
}

// Remove removes a key, and its last good version.
func (s *State) Remove(key []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[string(key)]; e != nil {
		s.removeLocked(e)
	}
}

func (s *State) removeLocked(e *entry) {
	s.forgetLocked(e)
	delete(s.entries, e.key)
}

func (s *State) forgetLocked(e *entry) {
	e.over = true
	s.markLocked(e, nil)
	s.noteOddLocked(e, reading{}, nil)
	switch {
	case e.good.slice != nil:
		s.rejoinLocked(e, e.good.slice)
		s.lapse(e)
	case e.good != (content{}):
		s.dirtyLocked(e)
	}
}

// news reports whether this value of the key has not been spoken of, and remembers that it has been.
func (e *entry) news(sum uint64) bool {
	t := e.noteError()
	if slices.Contains(t.told, sum) {
		return false
	}
	if t.told = append(t.told, sum); len(t.told) > maxTold {
		t.told = t.told[1:]
	}
	return true
}

// object tells which one an entry speaks of, which is neither foreign nor a slice.
func (e *entry) object() object {
	key, _ := registry.ParseKey(e.key) // it was read before
	return object{key.Kind, key.Name}
}
