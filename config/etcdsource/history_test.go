package etcdsource_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"kubeproxy/registry"
)

// The history is what the model test knows for certain: every write that etcd committed, and so the
// value of every key below the prefix at every revision. The source is judged by it alone.
//
//	era 0  ──1────────────────58─────────90      restored: back to 58, then on from there
//	                           └──59────73       wiped: from nothing, and revision 1 comes again
//	era 2  ──1──────────────────────────73
//
// One revision can therefore name several states. An era is one life of the data directory in which
// it names one.
type history struct {
	mu   sync.Mutex // held while a write is under way, so that who reads the history misses none
	eras []*era     // oldest first
}

// An era begins empty or as a copy of an earlier era up to the revision fork. Each key has its own
// list of versions, so the state at any revision can be had without replaying anything.
type era struct {
	number int
	before *era  // the one that etcd lived in before, whatever it began as
	parent *era  // nil: began empty
	fork   int64 // the last revision taken over from parent
	keys   map[string][]*version
	log    []transaction // every transaction since the empty etcd, oldest first
}

// A transaction is one commit: a revision and what was done at it, to distinct keys.
type transaction struct {
	revision int64
	ops      []op
}

// An op puts a value, or deletes one key or (with end) the keys from key up to but without end.
type op struct {
	key, end string
	value    string
	remove   bool
}

// A version is what one write left under one key.
type version struct {
	key      string
	value    string
	revision int64           // of the write: the key's mod revision
	created  int64           // the key's create revision; 0: this write deleted the key
	record   registry.Record // valid when good
	good     bool            // the value decodes
}

// newEra returns an era that knows what parent knew up to fork, or nothing when parent is nil. It is
// part of a history once it is added to one.
func newEra(parent *era, fork int64) *era {
	e := &era{parent: parent, fork: fork, keys: make(map[string][]*version)}
	if parent == nil {
		return e
	}
	for key, versions := range parent.keys {
		if n := countUpTo(versions, fork); n > 0 {
			e.keys[key] = slices.Clone(versions[:n])
		}
	}
	for _, tx := range parent.log {
		if tx.revision <= fork {
			e.log = append(e.log, tx)
		}
	}
	return e
}

// add makes e the era that etcd lives in from now on.
func (h *history) add(e *era) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.number = len(h.eras); e.number > 0 {
		e.before = h.newest()
	}
	h.eras = append(h.eras, e)
}

// newest returns the era that etcd is living in. The caller holds mu, or the writer's gate.
func (h *history) newest() *era { return h.eras[len(h.eras)-1] }

// commit writes down one transaction that etcd has committed at revision.
func (e *era) commit(revision int64, ops []op) {
	e.log = append(e.log, transaction{revision, ops})
	for _, o := range ops {
		switch {
		case !o.remove:
			e.put(o.key, o.value, revision)
		case o.end == "":
			e.remove(o.key, revision)
		default:
			for key := range e.keys {
				if o.key <= key && key < o.end {
					e.remove(key, revision)
				}
			}
		}
	}
}

func (e *era) put(key, value string, revision int64) {
	if !strings.HasPrefix(key, registry.Prefix) {
		return // nothing the source may ever speak of
	}
	v := &version{key: key, value: value, revision: revision, created: revision}
	if last := e.at(key, revision); last != nil {
		v.created = last.created
	}
	if _, err := registry.ParseKey(key); err == nil {
		rec, _, err := registry.Decode(key, []byte(value))
		v.record, v.good = rec, err == nil
	}
	e.keys[key] = append(e.keys[key], v)
}

func (e *era) remove(key string, revision int64) {
	if e.at(key, revision) != nil {
		e.keys[key] = append(e.keys[key], &version{key: key, revision: revision})
	}
}

// head returns the newest revision. An empty etcd stands at 1.
func (e *era) head() int64 {
	if len(e.log) == 0 {
		return max(1, e.fork)
	}
	return e.log[len(e.log)-1].revision
}

// at returns what key held at revision, nil for nothing.
func (e *era) at(key string, revision int64) *version {
	versions := e.keys[key]
	n := countUpTo(versions, revision)
	if n == 0 || versions[n-1].created == 0 {
		return nil
	}
	return versions[n-1]
}

// goodOf returns the decodable versions that key had in the life that began at created, written
// after the revision after and not after upTo, oldest first.
func (e *era) goodOf(key string, created, after, upTo int64) []*version {
	var good []*version
	versions := e.keys[key]
	for _, v := range versions[countUpTo(versions, after):countUpTo(versions, upTo)] {
		if v.created == created && v.good {
			good = append(good, v)
		}
	}
	return good
}

// wroteAt tells whether some key below the prefix changed at revision.
func (e *era) wroteAt(revision int64) bool {
	for _, versions := range e.keys {
		if n := countUpTo(versions, revision); n > 0 && versions[n-1].revision == revision {
			return true
		}
	}
	return false
}

// state returns every key below the prefix that exists at revision.
func (e *era) state(revision int64) map[string]*version {
	s := make(map[string]*version)
	for key := range e.keys {
		if v := e.at(key, revision); v != nil {
			s[key] = v
		}
	}
	return s
}

// shared returns the last revision up to which two eras tell the same story: 0 when they have
// nothing in common.
func shared(a, b *era) int64 {
	upTo := map[*era]int64{}
	for e, limit := a, int64(1<<62); e != nil; e, limit = e.parent, min(limit, e.fork) {
		upTo[e] = limit
	}
	for e, limit := b, int64(1<<62); e != nil; e, limit = e.parent, min(limit, e.fork) {
		if other, ok := upTo[e]; ok {
			return min(limit, other)
		}
	}
	return 0
}

// countUpTo counts the versions written at or before revision.
func countUpTo(versions []*version, revision int64) int {
	n, _ := slices.BinarySearchFunc(versions, revision+1, func(v *version, rev int64) int { return int(v.revision - rev) })
	return n
}

// story tells what happened to key around revision, for the message of a failure.
func (e *era) story(key string, revision int64) string {
	versions := e.keys[key]
	n := countUpTo(versions, revision)
	var b strings.Builder
	fmt.Fprintf(&b, "%q in era %d:", key, e.number)
	for i := max(0, n-4); i < min(n+2, len(versions)); i++ {
		v := versions[i]
		if i == n {
			b.WriteString(" | later")
		}
		switch {
		case v.created == 0:
			fmt.Fprintf(&b, " @%d deleted", v.revision)
		case v.good:
			fmt.Fprintf(&b, " @%d (created %d) %s", v.revision, v.created, describe(v))
		default:
			fmt.Fprintf(&b, " @%d (created %d) undecodable", v.revision, v.created)
		}
	}
	return b.String()
}

// An object is what an Update speaks of. Two keys of etcd may name it.
type object struct {
	kind registry.Kind
	name registry.Name
}

func (o object) String() string { return strings.ToLower(o.kind.String()) + " " + o.name.String() }

func (o object) compare(p object) int {
	return cmp.Or(cmp.Compare(o.kind, p.kind), o.name.Compare(p.name))
}

// objectKeys are the keys that name one object; "" where that form was never written.
type objectKeys struct{ namespaced, flat string }

// objects returns every object that the era ever heard of.
func (e *era) objects() map[object]objectKeys {
	objects := make(map[object]objectKeys)
	for key := range e.keys {
		k, err := registry.ParseKey(key)
		if err != nil {
			continue // of another shape, or somebody else's
		}
		o := object{k.Kind, k.Name}
		keys := objects[o]
		if k.Flat {
			keys.flat = key
		} else {
			keys.namespaced = key
		}
		objects[o] = keys
	}
	return objects
}
