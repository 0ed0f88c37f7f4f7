package records

import (
	"maps"
	"slices"
	"strings"
	"time"

	"kubeproxy/config"
	"kubeproxy/registry"
	"kubeproxy/registry/patroni"
)

// A Holder is what a key outside the registry says.
type Holder struct {
	Key   string
	Value string
	Gone  bool // there is no such key

	Created int64 // stands for one life of the key
	Version int64 // how many times it was written in that life
	Seen    int64 // the revision of its newest change, or of the list that had it
}

// An election is what is known of a key that services name.
type election struct {
	key      string
	services map[registry.Name]bool
	known    bool
	refused  bool // it could not be read before it was known
	untold   bool // its changes were not told for a while, and no list is in since

	holder  string // the name that the key has; "": none
	seen    int64  // the revision at which it was seen there
	changes changes

	cluster *patroni.Cluster // of a key that ends with a slash; else nil
	present map[string]*presence
}

// isCluster reports whether a key stands for all those below it.
func isCluster(key string) bool { return strings.HasSuffix(key, "/") }

func newElection(key string) *election {
	e := &election{key: key, services: make(map[registry.Name]bool)}
	if isCluster(key) {
		e.cluster, e.present = &patroni.Cluster{CheckHost: checkHost}, make(map[string]*presence)
	}
	return e
}

// A presence is a key of a cluster while it exists.
type presence struct {
	created, seen int64  // the revisions of its creation, and of its newest value
	sum           uint64 // of that value, if it cannot be used
	bad           string // why not; "": it can
}

// changes are those of whom a key names. The first name that was read is one of the last, and is not counted.
type changes struct {
	last  []config.HolderChange // the oldest first
	count uint64
}

func (c *changes) add(name string, revision int64, at time.Time) {
	if len(c.last) > 0 {
		c.count++
	}
	if c.last = append(c.last, config.HolderChange{Holder: config.OneLine(name), Revision: revision, At: at}); len(c.last) > config.MaxHolderChanges {
		c.last = slices.Clone(c.last[1:])
	}
}

// electionsOf returns what is known of a key: as one that services name, and as one of a cluster.
func (s *State) electionsOf(key string) (all []*election) {
	if e := s.elections[key]; e != nil {
		all = append(all, e)
	}
	for end := strings.LastIndexByte(key, '/'); end >= 0; end = strings.LastIndexByte(key[:end], '/') {
		if e := s.elections[key[:end+1]]; e != nil {
			all = append(all, e)
		}
	}
	return all
}

// forServices names the services of an election.
func (e *election) forServices() string {
	var of Tally
	for _, name := range slices.SortedFunc(maps.Keys(e.services), registry.Name.Compare) {
		of.Add(name.String())
	}
	return of.String()
}

// names are the first of the services of an election.
func (e *election) names() []registry.Name {
	all := slices.SortedFunc(maps.Keys(e.services), registry.Name.Compare)
	return slices.Clone(all[:min(len(all), config.MaxElected)])
}

// rejected lists the keys of a cluster that cannot be used, each with why: the first ones, and how many there are.
func (e *election) rejected() (first []string, n int) {
	for _, key := range slices.Sorted(maps.Keys(e.present)) {
		why := e.present[key].bad
		if why == "" {
			continue
		}
		if n++; n <= config.MaxElected {
			first = append(first, registry.Quote(e.key+key)+": "+why)
		}
	}
	return first, n
}
