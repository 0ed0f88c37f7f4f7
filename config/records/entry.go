package records

import (
	"hash/maphash"
	"sync"
	"time"

	"kubeproxy/config"
	"kubeproxy/internal/lograte"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
	"kubeproxy/registry/names"
)

// A join is what the endpoint slices of one service add up to. It is computed on demand, once for all slices that have changed
// since: so a change costs by the size of the slices of its service, and many changes at once cost no more.
type join struct {
	entries []*entry // every one that has a slice of the service; some may have one no longer, or be listed twice
	stale   bool     // entries have changed since sum was made
	sum     *registry.Endpoints
	names   names.Names // of the endpoints
	warned  bool        // that the slices hold too much

	lapses []lapse // in the order of their deletions
	lapsed bool    // sum is made of these alone
}

// A lapse is a slice that was deleted while it belonged to a lease and had ready endpoints. Most often its lease has ended, and that
// says little of the endpoints: when a registry is away for longer than its leases, all of them end at once, however well the instances
// are. (Who takes an instance out of service says first that it is not ready.) So a service that has lost all its endpoints keeps these.
//
// A registry that was restored from a backup does not know the slices that were written since. Their instances write them again; until
// then their endpoints stay in force beside those of the backup, whose instances may be long gone.
type lapse struct {
	key   string
	slice *registry.EndpointSlice
	names names.Names
	until time.Time
	sweep uint32    // number of the last merge when the slice was deleted
	lost  time.Time // until then it is in force beside others; zero: the registry has not lost it
}

// A Version is one value of a key, as the registry has it at some moment.
type Version struct {
	Key, Value []byte
	Created    int64 // stands for one life of the key: what is created again after a deletion has another number; 0: not known
	Revision   int64 // orders the versions of a life, and what is touched while a list is read
	Leased     bool  // etcd deletes the key when its lease ends
	Err        error // why there is no value, where there should be one; it counts as a value that does not decode
}

// A State is what a source knows of the registry: every key below the prefix, and which objects
// these make. It belongs to one goroutine; but [List.Add] may be called by another. Make it with [New].
type State struct {
	seed    maphash.Seed
	decoder decode.Decoder

	mu      sync.Mutex        // held by the owner where it edits entries, and by List.Add
	entries map[string]*entry // by key: every one, usable or not
	sweep   uint32            // number of the last merge

	rejected   listing[config.Rejection] // entries whose newest value cannot be used
	odd        listing[config.Warning]   // entries whose newest value is used, and odd
	complaints *lograte.Limiter[complaint]
	encrypted  bool // a line has said that there are values which an API server has encrypted
	part       bool // there are other states of the same source
	summarised bool // none of the keys that are being read can be used: one line says so, and not one for each

	services  map[registry.Name]*registry.Service // what the changes taken so far add up to
	endpoints map[registry.Name]*registry.Endpoints
	dirty     []object // may differ from that by now; repeats are harmless

	joins map[registry.Name]*join // by the names of services

	follows   map[registry.Name]string // the keys that elect endpoints, by the services that name them
	elections map[string]*election     // by these keys
	elected   bool                     // what operators are shown of elections may have changed

	kept      map[registry.Name]bool // services whose endpoints are in force though their leases have ended
	lapsing   map[registry.Name]bool // services with lapses; some may have none any more
	nextLapse time.Time              // when the first lapse is forgotten, or earlier; zero: there is none
}

// An object is a service or the endpoints of one. Up to two keys may name it, and any number of endpoint slices.
type object struct {
	kind registry.Kind
	name registry.Name
}

// An entry is one key, from its creation to its deletion.
type entry struct {
	key       string
	over      bool         // the key was deleted, or has begun another life since
	leased    bool         // by its newest version
	foreign   bool         // not a record's key: of another program, or of the wrong depth
	sweep     uint32       // number of the merge whose list had this key
	created   int64        // another number is another life of the key
	sum       uint64       // hash of its newest bytes
	seen      int64        // the revision of its newest bytes
	good      content      // the newest version in this life that decoded; zero if none did
	recordErr *recordError // nil as long as there was none: of most there never is any
}

// A content is what a record says, by its kind.
type content struct {
	service   *registry.Service
	endpoints *registry.Endpoints
	slice     *registry.EndpointSlice
	names     names.Names // of the endpoints of either
}

func (c content) equal(d content) bool {
	return c.service.Equal(d.service) && c.endpoints.Equal(d.endpoints) && c.slice.Equal(d.slice) && c.names == d.names
}

// A recordError is what is remembered of an entry with values that cannot be used, or are odd.
type recordError struct {
	bad    *config.Rejection // why the newest bytes cannot be used; nil: they can
	odd    *config.Warning   // what is odd in the newest bytes, which are used; nil: nothing
	goodAt int64             // while bad is set: the revision of the good version
	told   []uint64          // hashes of values that a log line was written about
	blamed bool              // an error was logged, and that it is mended was not yet
}

// noteError returns the recordError of an entry, and makes it if there is none.
func (e *entry) noteError() *recordError {
	if e.recordErr == nil {
		e.recordErr = new(recordError)
	}
	return e.recordErr
}

// bad tells why the newest bytes cannot be used; nil when they can.
func (e *entry) bad() *config.Rejection {
	if e.recordErr == nil {
		return nil
	}
	return e.recordErr.bad
}

// isOdd reports whether the newest bytes cannot be used, or are odd.
func (e *entry) isOdd() bool {
	return e.recordErr != nil && (e.recordErr.bad != nil || e.recordErr.odd != nil)
}

// goodAt gives the revision of the good version.
func (e *entry) goodAt() int64 {
	if e.bad() == nil {
		return e.seen
	}
	return e.recordErr.goodAt
}

// A reading is a version with what is known of it already.
type reading struct {
	key               string
	created, revision int64
	leased            bool
	sum               uint64 // hash of its bytes

	// What it says: decoded before, or known by another version of the same bytes, or still to be decoded.
	decoded *decoding
	known   bool
	content content
	value   []byte
	err     error // why there is no value
}

// record is the good version of the record of a name. In namespace default the namespaced key and v0.4's flat key may both name one:
// the namespaced one counts while it has a good version, and the other waits in its shadow.
func (s *State) record(prefix string, name registry.Name) content {
	if e := s.entry(prefix, name.Namespace, "/", name.Name); e != nil && e.good != (content{}) {
		return e.good
	}
	if name.Namespace == registry.DefaultNamespace {
		if e := s.entry(prefix, name.Name); e != nil {
			return e.good
		}
	}
	return content{}
}

// entry finds the entry of a key, which is given in parts: no string need be made of them. It is nil if there is none.
func (s *State) entry(parts ...string) *entry {
	var room [128]byte
	key := room[:0]
	for _, part := range parts {
		key = append(key, part...)
	}
	return s.entries[string(key)]
}
