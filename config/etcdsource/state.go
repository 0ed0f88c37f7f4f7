package etcdsource

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/golang/glog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"kubeproxy/internal/lograte"
	"kubeproxy/registry"
)

// Records are what the source knows of the registry: every key below the prefix, and which objects
// these make. Values arrive by list and by watch; what has changed since the last time is taken out
// as changes, which make an Update. It belongs to one goroutine; but sift may be called by another.
type records struct {
	seed maphash.Seed

	mu      sync.Mutex        // held by the owner where it edits entries, and by sift
	entries map[string]*entry // by etcd key: every one, usable or not
	sweep   uint32            // number of the last merge
	invalid int               // entries whose newest value cannot be used

	listed     []*Rejection // some of them
	relisted   bool         // since rejections was called last
	complaints *lograte.Limiter[complaint]
	hushed     bool // none of the keys that are being read can be used: one line says so, and not one for each

	services  map[registry.Name]*registry.Service // what the changes taken so far add up to
	endpoints map[registry.Name]*registry.Endpoints
	dirty     []object // may differ from that by now; repeats are harmless
}

// An object is a service or the endpoints of one. Up to two keys may name it.
type object struct {
	kind registry.Kind
	name registry.Name
}

// An entry is one key, from its creation to its deletion.
type entry struct {
	key     string
	over    bool     // the key was deleted, or has begun another life since
	foreign bool     // not a record's key: somebody else's, or of the wrong depth
	sweep   uint32   // number of the merge whose list had this key
	created int64    // create revision: another one is another life of the key
	sum     uint64   // hash of its newest bytes
	seen    int64    // the mod revision of its newest bytes
	good    content  // the newest version in this life that decoded; zero if none did
	trouble *trouble // nil as long as there was none: of most there never is any
}

// A content is what a record says, by its kind.
type content struct {
	service   *registry.Service
	endpoints *registry.Endpoints
}

// A trouble is what is remembered of an entry with values that cannot be used, or are odd.
type trouble struct {
	bad    *Rejection // why the newest bytes cannot be used; nil: they can
	goodAt int64      // while bad is set: the mod revision of the good version
	told   []uint64   // hashes of values that a log line was written about
	blamed bool       // an error was logged, and that it is mended was not yet
}

// troubled gives the trouble of an entry, for more to be added.
func (e *entry) troubled() *trouble {
	if e.trouble == nil {
		e.trouble = new(trouble)
	}
	return e.trouble
}

// bad tells why the newest bytes cannot be used; nil when they can.
func (e *entry) bad() *Rejection {
	if e.trouble == nil {
		return nil
	}
	return e.trouble.bad
}

// goodAt gives the mod revision of the good version.
func (e *entry) goodAt() int64 {
	if e.bad() == nil {
		return e.seen
	}
	return e.trouble.goodAt
}

// A version is one value of a key, as etcd has it at some revision.
type version struct {
	key               string
	created, modified int64
	sum               uint64 // hash of its bytes

	// What it says: decoded before, or still to be decoded, or known by another version of the same bytes.
	decoded *decoding
	kv      *mvccpb.KeyValue
	content content
}

// sum gives the hash of a value's bytes.
func (r *records) sum(kv *mvccpb.KeyValue) uint64 {
	return maphash.Bytes(r.seed, kv.Value)
}

// key gives the key as a string. There is one already if it is known, for a map finds it by its bytes, or if the value
// was decoded.
func (r *records) key(kv *mvccpb.KeyValue, decoded *decoding) string {
	if e := r.entries[string(kv.Key)]; e != nil {
		return e.key
	}
	if decoded != nil {
		return decoded.key
	}
	return string(kv.Key)
}

func (r *records) version(kv *mvccpb.KeyValue, decoded *decoding) version {
	return version{key: r.key(kv, decoded), created: kv.CreateRevision, modified: kv.ModRevision, sum: r.sum(kv), decoded: decoded, kv: kv}
}

func (v version) says() decoding {
	switch {
	case v.decoded != nil:
		return *v.decoded
	case v.kv != nil:
		return decode(v.key, v.kv.Value)
	}
	return decoding{content: v.content}
}

// A familiar is a listed version whose bytes were those of the entry when they came, and not bad. What the entry
// made of them takes the place of the bytes.
type familiar struct {
	entry    *entry // for its key and its life only; the rest may change
	modified int64
	sum      uint64
	content  content
}

func (f familiar) version() version {
	return version{key: f.entry.key, created: f.entry.created, modified: f.modified, sum: f.sum, content: f.content}
}

// isNewest tells whether these are still the bytes of the entry, and the list is no older than what was last seen of it.
func (f familiar) isNewest() bool {
	e := f.entry
	return !e.over && e.sum == f.sum && e.seen <= f.modified
}

// sift sorts a page of a list: what is known is added to familiar, and the rest is returned. That is a copy, and
// nothing else of the page is kept. So a list of a registry that has hardly changed takes little room, however long it is.
// Any goroutine may call it.
func (r *records) sift(page []*mvccpb.KeyValue, known *[]familiar) (news []*mvccpb.KeyValue) {
	sums := make([]uint64, len(page))
	for i, kv := range page { // the watch need not wait for this
		sums[i] = r.sum(kv)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, kv := range page {
		e := r.entries[string(kv.Key)]
		if e == nil || e.created != kv.CreateRevision || e.sum != sums[i] || e.bad() != nil {
			news = append(news, proto.CloneOf(kv))
			continue
		}
		*known = append(*known, familiar{e, kv.ModRevision, sums[i], e.good})
	}
	return news
}

// maxComplaints is how many bad values have their lines in a window.
const maxComplaints = 20

// A complaint is what lines about a bad value are about.
type complaint struct {
	key string
	sum uint64 // of the value; 0 when the key itself is bad
}

// maxTold bounds how many values of one key are remembered for not being logged again.
const maxTold = 8

func newRecords() *records {
	return &records{
		entries:   make(map[string]*entry),
		seed:      maphash.MakeSeed(),
		services:  make(map[registry.Name]*registry.Service),
		endpoints: make(map[registry.Name]*registry.Endpoints),

		complaints: &lograte.Limiter[complaint]{Lines: maxComplaints, First: firstWindow, Last: lastWindow},
	}
}

// put takes in the newest value of a key, and tells whether it is another value or another life than
// was known.
//
// The bytes decide that, by their hash. The mod revision cannot: an etcd whose data were wiped can come
// back with the same ids and revisions and other values. Equal bytes cost no decoding, so to list a
// registry that has not changed is cheap.
func (r *records) put(kv *mvccpb.KeyValue) (different bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.version(kv, nil)
	_, different = r.takeLocked(r.entries[v.key], v)
	return different
}

// takeLocked is put of a version that may have been decoded before. It is given the entry of its key, nil for none,
// and returns it.
func (r *records) takeLocked(e *entry, v version) (_ *entry, different bool) {
	if e == nil || e.created != v.created {
		e, different = r.createLocked(v, e), true
	} else {
		different = e.sum != v.sum
	}
	if different && !e.foreign {
		r.readLocked(e, v)
	}
	e.sum, e.seen = v.sum, v.modified
	r.list(e)
	if e.bad() != nil && e.trouble.goodAt > v.modified { // of a history that etcd has lost, for it went back
		e.good, e.trouble.goodAt = content{}, 0
		r.dirty = append(r.dirty, e.object())
	}
	return e, different
}

// readLocked takes in what a new value says. One that does not decode hurts only itself: the last good version
// of its key stays in force (D17, D18).
func (r *records) readLocked(e *entry, v version) {
	said := v.says()
	if said.err != nil {
		r.markLocked(e, rejection(v, said.err))
	} else {
		r.markLocked(e, nil)
		r.useLocked(e, said.content, v)
		if e.trouble != nil && e.trouble.blamed {
			e.trouble.blamed = false
			glog.Infof("key %s can be used again, since revision %d", registry.Quote(v.key), v.modified)
		}
	}
	if (said.err == nil && len(said.warnings) == 0) || !e.news(v.sum) || r.hushed {
		return
	}
	note, ok := r.complaints.Allow(complaint{e.key, v.sum})
	if !ok {
		return
	}
	key := registry.Quote(v.key)
	if said.err != nil {
		e.trouble.blamed = true
		glog.Errorf("bad value of key %s at revision %d: %v; %s%s", key, v.modified, said.err, e.remains(), note)
		note = ""
	}
	for _, w := range said.warnings {
		glog.Warningf("key %s: %s%s", key, w, note)
		note = ""
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
func (r *records) createLocked(v version, old *entry) *entry {
	e := &entry{key: v.key, created: v.created}
	if old != nil {
		r.forgetLocked(old)
		e.key, e.sweep = old.key, old.sweep
		if old.trouble != nil {
			e.trouble = &trouble{told: old.trouble.told, blamed: old.trouble.blamed}
		}
	}
	if _, err := registry.ParseKey(v.key); err != nil {
		e.foreign = true
		switch {
		case errors.Is(err, registry.ErrForeign):
			glog.V(4).Infof("ignored key %s: %v", registry.Quote(v.key), err)
		default:
			if e.news(0) && !r.hushed {
				if note, ok := r.complaints.Allow(complaint{key: e.key}); ok {
					glog.Errorf("bad key %s: %v%s", registry.Quote(v.key), err, note)
				}
			}
			r.markLocked(e, rejection(v, err))
		}
	}
	r.entries[e.key] = e
	return e
}

// useLocked makes what a version says the good one of its key.
func (r *records) useLocked(e *entry, says content, v version) {
	if e.bad() != nil {
		e.trouble.goodAt = v.modified
	}
	if says.service != nil && says.service.Created != v.created {
		says.service.Created = v.created // it is new, and nobody else has seen it yet
	}
	if e.good != (content{}) && e.good.service.Equal(says.service) && e.good.endpoints.Equal(says.endpoints) {
		return // written otherwise, saying the same
	}
	if says.service != nil && says.service.Since == nil { // it is new, as above
		says.service.Date(e.good.service, v.modified)
	}
	e.good = says
	r.dirty = append(r.dirty, e.object())
}

// fillLocked takes in an older value than the newest known. It counts where the newest value is a bad one and
// the last good version, if there is one, is older still.
func (r *records) fillLocked(e *entry, v version) {
	if e == nil || e.foreign || e.created != v.created || e.bad() == nil || v.modified <= e.goodAt() {
		return
	}
	if said := v.says(); said.err == nil {
		r.useLocked(e, said.content, v)
	}
}

// fill handles a value that a newer one overtook before it was decoded. It counts only while the newer one is bad.
func (r *records) fill(kv *mvccpb.KeyValue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[string(kv.GetKey())]; e != nil && kv.GetModRevision() < e.seen {
		r.fillLocked(e, r.version(kv, nil))
	}
}

// remove takes in that a key is gone, and with it its last good version.
func (r *records) remove(key []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[string(key)]; e != nil {
		r.removeLocked(e)
	}
}

func (r *records) removeLocked(e *entry) {
	r.forgetLocked(e)
	delete(r.entries, e.key)
}

func (r *records) forgetLocked(e *entry) {
	e.over = true
	r.markLocked(e, nil)
	if e.good != (content{}) {
		r.dirty = append(r.dirty, e.object())
	}
}

// news tells whether this value of the key has not been spoken of, and remembers that it has been.
func (e *entry) news(sum uint64) bool {
	t := e.troubled()
	if slices.Contains(t.told, sum) {
		return false
	}
	if t.told = append(t.told, sum); len(t.told) > maxTold {
		t.told = t.told[1:]
	}
	return true
}

// object tells which one an entry speaks of, which is not foreign.
func (e *entry) object() object {
	key, _ := registry.ParseKey(e.key) // it was read before
	return object{key.Kind, key.Name}
}

// merge makes the records equal to a complete list, but for keys that the watch has spoken of since the
// list was asked for: touched has the revision of its last event for each, and the newer of the two
// counts (D22: in v0.4 the list won, always).
//
// It returns which keys were different from what was known. The watch has told of everything up to
// revision heard: what is different from before that it should have told, and has not. These
// divergences are returned too.
func (r *records) merge(l listing, touched map[string]int64, heard int64) (different, divergent tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep++
	r.hushed = len(r.entries) == 0 && l.useless()
	defer func() { r.hushed = false }()
	differs := func(key string, since int64) {
		different.add(key)
		if since <= heard {
			divergent.add(key)
		}
	}
	listed := func(v version) {
		e := r.entries[v.key]
		if touched[v.key] > l.revision {
			r.fillLocked(e, v)
			return
		}
		since, older := v.modified, false
		switch {
		case e == nil || e.created != v.created:
			since = v.created
		case v.modified < e.seen: // whatever its bytes are, that is another history
			since, older = 0, true
		}
		e, changed := r.takeLocked(e, v)
		if changed || older {
			differs(v.key, since)
		}
		e.sweep = r.sweep
	}
	familiars := func(below string) { // as far as they come before a key
		for len(l.known) > 0 && (below == "" || l.known[0].entry.key < below) {
			f := l.known[0]
			l.known = l.known[1:]
			if e := f.entry; f.isNewest() { // as nearly all are; then the watch has not spoken of it either
				e.seen, e.sweep = f.modified, r.sweep
				continue
			}
			listed(f.version())
		}
	}
	for i, kv := range l.kvs {
		v := r.version(kv, l.decodedAt(i))
		familiars(v.key) // in the order of etcd, in which the first few are named in the log
		listed(v)
	}
	familiars("")
	for key, e := range r.entries {
		if e.sweep == r.sweep || touched[key] > l.revision {
			continue
		}
		r.removeLocked(e)
		differs(key, l.revision) // deleted then at the latest
	}
	return different, divergent
}

// useless reports whether there are keys and none of them can be used.
func (r *records) useless() bool { return r.invalid > 0 && len(r.services)+len(r.endpoints) == 0 }

// changes takes out what has changed since the last time.
func (r *records) changes() (services []registry.Change[registry.Service], endpoints []registry.Change[registry.Endpoints]) {
	for _, o := range r.dirty {
		switch says := r.inForce(o); o.kind {
		case registry.KindService:
			services = change(services, r.services, o.name, says.service)
		case registry.KindEndpoints:
			endpoints = change(endpoints, r.endpoints, o.name, says.endpoints)
		}
	}
	r.dirty = r.dirty[:0]
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

// inForce is what counts for an object. In namespace default the namespaced key and v0.4's
// flat key may both name it: the namespaced one counts while it has a good version, and the other
// waits in its shadow.
func (r *records) inForce(o object) content {
	prefix := registry.SpecsPrefix
	if o.kind == registry.KindEndpoints {
		prefix = registry.EndpointsPrefix
	}
	if e := r.entry(prefix, o.name.Namespace, "/", o.name.Name); e != nil && e.good != (content{}) {
		return e.good
	}
	if o.name.Namespace == registry.DefaultNamespace {
		if e := r.entry(prefix, o.name.Name); e != nil {
			return e.good
		}
	}
	return content{}
}

// entry finds the entry of a key, which is given in parts: no string need be made of them. It is nil if there is none.
func (r *records) entry(parts ...string) *entry {
	var room [128]byte
	key := room[:0]
	for _, part := range parts {
		key = append(key, part...)
	}
	return r.entries[string(key)]
}

// everything is the whole state as a SET lists it. Changes not taken yet are taken.
func (r *records) everything() ([]registry.Change[registry.Service], []registry.Change[registry.Endpoints]) {
	r.changes()
	return all(r.services), all(r.endpoints)
}

func all[T any](objects map[registry.Name]*T) []registry.Change[T] {
	changes := make([]registry.Change[T], 0, len(objects))
	for name, value := range objects {
		changes = append(changes, registry.Change[T]{Name: name, Value: value})
	}
	return changes
}
