package truth

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// A History is what an experiment knows for certain: every write that etcd committed, and so the
// value of every key below the prefix at every revision. The source is judged by it alone. It begins
// without an era: Add one.
//
//	era 0  ──1────────────────58─────────90      restored: back to 58, then on from there
//	                           └──59────73       wiped: from nothing, and revision 1 comes again
//	era 2  ──1──────────────────────────73
//
// One revision can therefore name several states. An era is one life of the data directory in which
// it names one.
type History struct {
	mu   sync.Mutex // held while a write is under way, so that who reads the history misses none
	eras []*Era     // oldest first
}

// An Era begins empty or as a copy of an earlier era up to the revision fork. Each key has its own
// list of versions, so the state at any revision can be had without replaying anything.
type Era struct {
	number int
	before *Era  // the one that etcd lived in before, whatever it began as
	parent *Era  // nil: began empty
	fork   int64 // the last revision taken over from parent
	keys   map[string][]*Version
	slices map[string][]registry.Name // by the key of an endpoint slice: the services that it ever belonged to, in this era or one before
	log    []Transaction              // every transaction since the empty etcd, oldest first
}

// A Transaction is one commit: a revision and what was done at it, to distinct keys.
type Transaction struct {
	Revision int64
	Ops      []Op
}

// An Op puts a value, or deletes one key or (with end) the keys from key up to but without end.
type Op struct {
	Key, End string
	Value    string
	Remove   bool
}

// A Version is what one write left under one key.
type Version struct {
	Key      string
	Value    string
	Revision int64         // of the write: the key's mod revision
	Created  int64         // the key's create revision; 0: this write deleted the key
	Record   decode.Record // valid when Good
	Good     bool          // the value decodes
}

// NewEra returns an era that knows what parent knew up to fork, or nothing when parent is nil. It is
// part of a history once it is added to one.
func NewEra(parent *Era, fork int64) *Era {
	e := &Era{parent: parent, fork: fork, keys: make(map[string][]*Version), slices: make(map[string][]registry.Name)}
	if parent == nil {
		return e
	}
	for key, versions := range parent.keys {
		if n := countUpTo(versions, fork); n > 0 {
			e.keys[key] = slices.Clone(versions[:n])
		}
	}
	for _, tx := range parent.log {
		if tx.Revision <= fork {
			e.log = append(e.log, tx)
		}
	}
	return e
}

// Add makes e the era that etcd lives in from now on.
func (h *History) Add(e *Era) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.number = len(h.eras); e.number > 0 {
		e.before = h.Newest()
		for key, services := range e.before.slices { // the source may keep a slice of a life that it cannot tell from one of e
			for _, service := range services {
				e.sliceOf(key, service)
			}
		}
	}
	h.eras = append(h.eras, e)
}

// Newest returns the era that etcd is living in. The caller holds the writer's Gate.
func (h *History) Newest() *Era { return h.eras[len(h.eras)-1] }

// Head returns the newest revision of the newest era. Any goroutine may call it; the answer waits for a write that
// is under way.
func (h *History) Head() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Newest().Head()
}

// Eras tells how many there have been.
func (h *History) Eras() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.eras)
}

// Write calls write, and enters what it says was committed, unless the revision is 0. Who reads the history meanwhile waits. It is for
// writers of other registries than [Writer]'s.
func (h *History) Write(write func() (revision int64, ops []Op)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if revision, ops := write(); revision != 0 {
		h.Newest().Commit(revision, ops)
	}
}

// Commit writes down one transaction that etcd has committed at revision.
func (e *Era) Commit(revision int64, ops []Op) {
	e.log = append(e.log, Transaction{revision, ops})
	for _, o := range ops {
		switch {
		case !o.Remove:
			e.put(o.Key, o.Value, revision)
		case o.End == "":
			e.remove(o.Key, revision)
		default:
			for key := range e.keys {
				if o.Key <= key && key < o.End {
					e.remove(key, revision)
				}
			}
		}
	}
}

func (e *Era) put(key, value string, revision int64) {
	if !strings.HasPrefix(key, registry.Prefix) {
		return // nothing the source may ever speak of
	}
	v := &Version{Key: key, Value: value, Revision: revision, Created: revision}
	if last := e.at(key, revision); last != nil {
		v.Created = last.Created
	}
	if _, err := registry.ParseKey(key); err == nil {
		rec, _, err := decode.Decode(key, []byte(value))
		v.Record, v.Good = rec, err == nil
		if s := rec.Slice; s != nil && s.Service != "" {
			e.sliceOf(key, s.ServiceName())
		}
	}
	e.keys[key] = append(e.keys[key], v)
}

// sliceOf notes that the endpoint slice at key has belonged to a service.
func (e *Era) sliceOf(key string, service registry.Name) {
	if !slices.Contains(e.slices[key], service) {
		e.slices[key] = append(e.slices[key], service)
	}
}

func (e *Era) remove(key string, revision int64) {
	if e.at(key, revision) != nil {
		e.keys[key] = append(e.keys[key], &Version{Key: key, Revision: revision})
	}
}

// Log gives every transaction since the empty etcd, oldest first.
func (e *Era) Log() []Transaction { return e.log }

// Head returns the newest revision. An empty etcd stands at 1.
func (e *Era) Head() int64 {
	if len(e.log) == 0 {
		return max(1, e.fork)
	}
	return e.log[len(e.log)-1].Revision
}

// at returns what key held at revision, nil for nothing.
func (e *Era) at(key string, revision int64) *Version {
	versions := e.keys[key]
	n := countUpTo(versions, revision)
	if n == 0 || versions[n-1].Created == 0 {
		return nil
	}
	return versions[n-1]
}

// goodOf returns the decodable versions that key had in the life that began at created, written
// after the revision after and not after upTo, oldest first.
func (e *Era) goodOf(key string, created, after, upTo int64) []*Version {
	var good []*Version
	versions := e.keys[key]
	for _, v := range versions[countUpTo(versions, after):countUpTo(versions, upTo)] {
		if v.Created == created && v.Good {
			good = append(good, v)
		}
	}
	return good
}

// wroteAt reports whether some key below the prefix changed at revision.
func (e *Era) wroteAt(revision int64) bool {
	for _, versions := range e.keys {
		if n := countUpTo(versions, revision); n > 0 && versions[n-1].Revision == revision {
			return true
		}
	}
	return false
}

// State returns every key below the prefix that exists at revision.
func (e *Era) State(revision int64) map[string]*Version {
	s := make(map[string]*Version)
	for key := range e.keys {
		if v := e.at(key, revision); v != nil {
			s[key] = v
		}
	}
	return s
}

// shared returns the last revision up to which two eras tell the same story: 0 when they have
// nothing in common.
func shared(a, b *Era) int64 {
	upTo := map[*Era]int64{}
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
func countUpTo(versions []*Version, revision int64) int {
	n, _ := slices.BinarySearchFunc(versions, revision+1, func(v *Version, rev int64) int { return int(v.Revision - rev) })
	return n
}

// story tells what happened to key around revision, for the message of a failure.
func (e *Era) story(key string, revision int64) string {
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
		case v.Created == 0:
			fmt.Fprintf(&b, " @%d deleted", v.Revision)
		case v.Good:
			fmt.Fprintf(&b, " @%d (created %d) %s", v.Revision, v.Created, describe(v))
		default:
			fmt.Fprintf(&b, " @%d (created %d) undecodable", v.Revision, v.Created)
		}
	}
	return b.String()
}

// An object is what an Update speaks of. Two keys of etcd may name it, and endpoints may also be in any number of endpoint slices.
type object struct {
	kind registry.Kind
	name registry.Name
}

func (o object) String() string { return strings.ToLower(o.kind.String()) + " " + o.name.String() }

func (o object) compare(p object) int {
	return cmp.Or(cmp.Compare(o.kind, p.kind), o.name.Compare(p.name))
}

// objectKeys are the keys that speak of one object: the namespaced one, the flat one, "" where that form was never written, and those of
// endpoint slices, in order.
type objectKeys []string

const (
	atNamespaced = iota
	atFlat
	atSlices
)

// objects returns every object that the era ever heard of.
func (e *Era) objects() map[object]objectKeys {
	objects := make(map[object]objectKeys)
	of := func(o object) objectKeys {
		if keys, ok := objects[o]; ok {
			return keys
		}
		return make(objectKeys, atSlices)
	}
	for key := range e.keys {
		k, err := registry.ParseKey(key)
		if err != nil || k.Kind == registry.KindEndpointSlice {
			continue // of another shape, or of another program; or see below
		}
		o := object{k.Kind, k.Name}
		keys := of(o)
		if k.Flat {
			keys[atFlat] = key
		} else {
			keys[atNamespaced] = key
		}
		objects[o] = keys
	}
	for _, key := range slices.Sorted(maps.Keys(e.slices)) {
		for _, service := range e.slices[key] {
			o := object{registry.KindEndpoints, service}
			objects[o] = append(of(o), key)
		}
	}
	return objects
}

// A content is what an object says: a service or endpoints, both nil for nothing.
type content struct {
	service   *registry.Service
	endpoints *registry.Endpoints
}

// says returns what an object says while its keys have these versions, nil for none. The namespaced key wins while it has a good
// version, and the flat one waits in its shadow; slices that belong to the service win over both.
func (o object) says(versions []*Version) (c content) {
	var parts []*registry.EndpointSlice
	for _, v := range versions[atSlices:] {
		if v != nil && v.Record.Slice.ServiceName() == o.name {
			parts = append(parts, v.Record.Slice)
		}
	}
	if len(parts) > 0 {
		c.endpoints, _ = registry.JoinSlices(o.name, parts) // too many endpoints are none of its business
		return c
	}
	v := cmp.Or(versions[atNamespaced], versions[atFlat])
	if v == nil {
		return c
	}
	if c.endpoints = v.Record.Endpoints; v.Record.Service != nil {
		s := *v.Record.Service
		s.Created = v.Created
		c.service = &s
	}
	return c
}

func (c content) String() string {
	if c.service != nil {
		return describeService(c.service)
	}
	return describeEndpoints(c.endpoints)
}
