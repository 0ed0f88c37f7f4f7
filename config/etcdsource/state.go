package etcdsource

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/golang/glog"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"kubeproxy/registry"
)

// Records are what the source knows of the registry: every key below the prefix, and which objects
// these make. Values arrive by list and by watch; what has changed since the last time is taken out
// as changes, which make an Update. It belongs to one goroutine.
type records struct {
	entries map[string]*entry // by etcd key: every one, usable or not
	seed    maphash.Seed
	sweep   uint64 // number of the last merge
	invalid int    // entries whose newest value cannot be used

	listed     []*Rejection // some of them
	relisted   bool         // since rejections was called last
	complaints ration

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
	key     registry.Key
	foreign bool            // not a record's key: somebody else's, or of the wrong depth
	created int64           // create revision: another one is another life of the key
	sum     uint64          // hash of its newest bytes
	good    registry.Record // the newest version in this life that decoded; zero if none did
	goodAt  int64           // the mod revision of that version
	bad     *Rejection      // why the newest bytes cannot be used; nil: they can
	seen    int64           // the mod revision of its newest bytes
	told    []uint64        // hashes of values that a log line was written about
	blamed  bool            // an error was logged, and that it is mended was not yet
	sweep   uint64          // number of the merge whose list had this key
}

// maxComplaints is how many bad records have their lines before the log has to rest.
const maxComplaints = 20

// maxTold bounds how many values of one key are remembered for not being logged again.
const maxTold = 8

func newRecords() *records {
	return &records{
		entries:   make(map[string]*entry),
		seed:      maphash.MakeSeed(),
		services:  make(map[registry.Name]*registry.Service),
		endpoints: make(map[registry.Name]*registry.Endpoints),

		complaints: ration{what: "more bad records", size: maxComplaints},
	}
}

// put takes in the newest value of a key, and tells whether it is another value or another life than
// was known.
//
// The bytes decide that, by their hash. The mod revision cannot: an etcd whose data were wiped can come
// back with the same ids and revisions and other values. Equal bytes cost no decoding, so to list a
// registry that has not changed is cheap.
func (r *records) put(kv *mvccpb.KeyValue) (different bool) {
	return r.take(kv, func() decoding { return decode(kv) })
}

// take is put of a value that may have been decoded before: decoded is called for what it says, if that is news.
func (r *records) take(kv *mvccpb.KeyValue, decoded func() decoding) (different bool) {
	e := r.entries[string(kv.Key)]
	sum := maphash.Bytes(r.seed, kv.Value)
	if e == nil || e.created != kv.CreateRevision {
		e, different = r.create(kv, e), true
	} else {
		different = e.sum != sum
	}
	if different && !e.foreign {
		r.read(e, kv, sum, decoded())
	}
	e.sum, e.seen = sum, kv.ModRevision
	r.list(e)
	switch {
	case e.bad == nil:
		e.goodAt = kv.ModRevision
	case e.goodAt > kv.ModRevision: // of a history that etcd has lost, for it went back
		e.good, e.goodAt = registry.Record{}, 0
		r.dirty = append(r.dirty, e.object())
	}
	return different
}

// read takes in what a new value says. One that does not decode hurts only itself: the last good version of
// its key stays in force (D17, D18).
func (r *records) read(e *entry, kv *mvccpb.KeyValue, sum uint64, said decoding) {
	record, warnings, err := said.record, said.warnings, said.err
	if err != nil {
		r.mark(e, rejection(kv, err))
	} else {
		r.mark(e, nil)
		r.use(e, record, kv)
		if e.blamed {
			e.blamed = false
			glog.Infof("key %s can be used again, since revision %d", registry.Quote(string(kv.Key)), kv.ModRevision)
		}
	}
	if (err == nil && len(warnings) == 0) || !e.news(sum) || !r.complaints.allow(time.Now()) {
		return
	}
	key := registry.Quote(string(kv.Key))
	if err != nil {
		e.blamed = true
		glog.Errorf("bad value of key %s at revision %d: %v; %s", key, kv.ModRevision, err, e.remains())
	}
	for _, w := range warnings {
		glog.Warningf("key %s: %s", key, w)
	}
}

// remains says what is in force in place of a bad value.
func (e *entry) remains() string {
	if e.good == (registry.Record{}) {
		return "nothing is known in its place"
	}
	return fmt.Sprintf("its value of revision %d stays in force", e.goodAt)
}

// create begins a life of a key. Nothing of an earlier one counts any more, except that what was said
// of its values need not be said again.
func (r *records) create(kv *mvccpb.KeyValue, old *entry) *entry {
	e := &entry{created: kv.CreateRevision}
	if old != nil {
		r.forget(old)
		e.told, e.blamed, e.sweep = old.told, old.blamed, old.sweep
	}
	key, err := registry.ParseKey(string(kv.Key))
	if err != nil {
		e.foreign = true
		switch {
		case errors.Is(err, registry.ErrForeign):
			glog.V(4).Infof("ignored key %s: %v", registry.Quote(string(kv.Key)), err)
		default:
			if e.news(0) && r.complaints.allow(time.Now()) {
				glog.Errorf("bad key %s: %v", registry.Quote(string(kv.Key)), err)
			}
			r.mark(e, rejection(kv, err))
		}
	}
	e.key = key
	r.entries[string(kv.Key)] = e
	return e
}

// use makes a decoded record the good version of its key.
func (r *records) use(e *entry, record registry.Record, kv *mvccpb.KeyValue) {
	e.goodAt = kv.ModRevision
	if record.Service != nil {
		record.Service.Created = kv.CreateRevision // nobody else has seen it yet
	}
	if e.good != (registry.Record{}) && e.good.Service.Equal(record.Service) && e.good.Endpoints.Equal(record.Endpoints) {
		return // written otherwise, saying the same
	}
	e.good = record
	r.dirty = append(r.dirty, e.object())
}

// fill takes in an older value than the newest known. It counts where the newest value is a bad one and
// the last good version, if there is one, is older still.
func (r *records) fill(kv *mvccpb.KeyValue) {
	e := r.entries[string(kv.Key)]
	if e == nil || e.foreign || e.created != kv.CreateRevision || e.bad == nil || kv.ModRevision <= e.goodAt {
		return
	}
	if record, _, err := registry.Decode(string(kv.Key), kv.Value); err == nil {
		r.use(e, record, kv)
	}
}

// remove takes in that a key is gone, and with it its last good version.
func (r *records) remove(key string) {
	if e := r.entries[key]; e != nil {
		r.forget(e)
		delete(r.entries, key)
	}
}

func (r *records) forget(e *entry) {
	r.mark(e, nil)
	if e.good != (registry.Record{}) {
		r.dirty = append(r.dirty, e.object())
	}
}

// news tells whether this value of the key has not been spoken of, and remembers that it has been.
func (e *entry) news(sum uint64) bool {
	if slices.Contains(e.told, sum) {
		return false
	}
	if e.told = append(e.told, sum); len(e.told) > maxTold {
		e.told = e.told[1:]
	}
	return true
}

func (e *entry) object() object { return object{e.key.Kind, e.key.Name} }

// merge makes the records equal to a complete list, but for keys that the watch has spoken of since the
// list was asked for: touched has the revision of its last event for each, and the newer of the two
// counts (D22: in v0.4 the list won, always).
//
// It returns which keys were different from what was known. The watch has told of everything up to
// revision heard: what is different from before that it should have told, and has not. These
// divergences are returned too.
func (r *records) merge(l listing, touched map[string]int64, heard int64) (different, divergent tally) {
	r.sweep++
	differs := func(key string, since int64) {
		different.add(key)
		if since <= heard {
			divergent.add(key)
		}
	}
	for i, kv := range l.kvs {
		if touched[string(kv.Key)] > l.revision {
			r.fill(kv)
			continue
		}
		since, older := kv.ModRevision, false
		switch e := r.entries[string(kv.Key)]; {
		case e == nil || e.created != kv.CreateRevision:
			since = kv.CreateRevision
		case kv.ModRevision < e.seen: // whatever its bytes are, that is another history
			since, older = 0, true
		}
		if r.take(kv, func() decoding { return l.decodedAt(i) }) || older {
			differs(string(kv.Key), since)
		}
		r.entries[string(kv.Key)].sweep = r.sweep
	}
	for key, e := range r.entries {
		if e.sweep == r.sweep || touched[key] > l.revision {
			continue
		}
		r.remove(key)
		differs(key, l.revision) // deleted then at the latest
	}
	return different, divergent
}

// changes takes out what has changed since the last time.
func (r *records) changes() (services []registry.Change[registry.Service], endpoints []registry.Change[registry.Endpoints]) {
	for _, o := range r.dirty {
		switch record := r.inForce(o); o.kind {
		case registry.KindService:
			services = change(services, r.services, o.name, record.Service)
		case registry.KindEndpoints:
			endpoints = change(endpoints, r.endpoints, o.name, record.Endpoints)
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

// inForce is the record that counts for an object. In namespace default the namespaced key and v0.4's
// flat key may both name it: the namespaced one counts while it has a good version, and the other
// waits in its shadow.
func (r *records) inForce(o object) registry.Record {
	prefix := registry.SpecsPrefix
	if o.kind == registry.KindEndpoints {
		prefix = registry.EndpointsPrefix
	}
	if e := r.entries[prefix+o.name.Namespace+"/"+o.name.Name]; e != nil && e.good != (registry.Record{}) {
		return e.good
	}
	if o.name.Namespace == registry.DefaultNamespace {
		if e := r.entries[prefix+o.name.Name]; e != nil {
			return e.good
		}
	}
	return registry.Record{}
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
