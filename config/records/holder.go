package records

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/golang/glog"

	"kubeproxy/registry"
	"kubeproxy/registry/names"
)

// How keys outside the registry elect endpoints. A service names a key, or all keys below one that ends with a slash, which are those of a cluster of
// Patroni: see cluster.go. Of the endpoints that the records of a service list, those are in force which they call by the value of its key. The source
// watches the keys beside the registry. Until it has read them, or says that it cannot, what was in force before stays.

// HolderKeys returns the keys that services name, in their order. One that ends with a slash stands for all below it.
func (s *State) HolderKeys() []string {
	s.follow()
	return slices.Sorted(maps.Keys(s.elections))
}

// follow notes which key each service names that may have changed.
func (s *State) follow() {
	for _, o := range s.dirty {
		if o.kind != registry.KindService {
			continue
		}
		key, was := "", s.follows[o.name]
		if service := s.record(registry.SpecsPrefix, o.name).service; service != nil {
			key = service.Terms().HolderKey
		}
		if key != was {
			s.elected = true
			if e := s.elections[was]; e != nil {
				if delete(e.services, o.name); len(e.services) == 0 {
					delete(s.elections, was)
				}
			}
			if s.follows[o.name] = key; key == "" {
				delete(s.follows, o.name)
			} else {
				if s.elections[key] == nil {
					s.elections[key] = newElection(key)
				}
				s.elections[key].services[o.name] = true
			}
		} else if !isCluster(key) {
			continue
		} else { // the service may want other members now
			s.elected = true
		}
		s.dirty = append(s.dirty, object{registry.KindEndpoints, o.name})
	}
}

// SetHolder notes a change of a key. One that is older than what is known of the key changes nothing.
func (s *State) SetHolder(h Holder) {
	for _, e := range s.electionsOf(h.Key) {
		switch {
		case e.cluster != nil:
			if p := e.present[strings.TrimPrefix(h.Key, e.key)]; p == nil || h.Seen > p.seen {
				s.setMember(e, h)
			}
		case !e.known || h.Seen > e.seen:
			s.setHolder(e, h)
		}
	}
}

// setHolder notes what a key says, and reports whether that differs from what was known.
func (s *State) setHolder(e *election, h Holder) (different bool) {
	if len(h.Value) > registry.MaxName {
		h.Value = h.Value[:registry.MaxName+1] // which is no name
	}
	different = e.known && e.holder != h.Value
	if !e.known || different {
		s.elects(e, h.Key, h.Value, h.Seen)
		s.touch(e)
	}
	e.holder, e.seen, e.known = h.Value, h.Seen, true
	return different
}

// touch notes that the endpoints of services may be others now.
func (s *State) touch(e *election) {
	for name := range e.services {
		s.dirty = append(s.dirty, object{registry.KindEndpoints, name})
	}
}

// elects logs and remembers whom a key names now.
func (s *State) elects(e *election, key, name string, revision int64) {
	e.changes.add(name, revision, time.Now())
	s.elected = true
	note, ok := s.complaints.Allow(complaint{key: key, sum: uint64(revision)})
	if !ok {
		return
	}
	if name == "" {
		glog.Warningf("key %s does not exist at revision %d: it elects no endpoint of %s%s", registry.Quote(key), revision, e.forServices(), note)
		return
	}
	glog.Infof("key %s elects %s at revision %d, among the endpoints of %s%s", registry.Quote(key), registry.Quote(name), revision, e.forServices(), note)
}

// choose returns what is in force of what the records of a service say, by the key that it names.
func (s *State) choose(name registry.Name, says content) content {
	e := s.elections[s.follows[name]]
	if e == nil || says.endpoints == nil && e.cluster == nil {
		return says
	}
	now := s.endpoints[name]
	switch {
	case e.known:
	case e.refused && now != nil: // what was in force before says nothing of the key, and it may be long until that is read
		return content{endpoints: &registry.Endpoints{Name: name}}
	default:
		return content{endpoints: now}
	}
	var is *registry.Endpoints
	if e.cluster != nil {
		is = s.members(name, e)
	} else {
		is = elect(says.endpoints, says.names.Of(), e.holder)
		if len(is.ByPort) == 0 && len(says.endpoints.ByPort) > 0 && e.holder != "" && !is.Equal(now) {
			if note, ok := s.complaints.Allow(complaint{key: name.String() + " " + e.key, sum: uint64(e.seen)}); ok {
				glog.Warningf("endpoints of %v: none is called %s, as key %s has it: annotation %s names them%s", name, registry.Quote(e.holder), registry.Quote(e.key), names.Annotation, note)
			}
		}
	}
	if is.Equal(now) {
		return content{endpoints: now}
	}
	return content{endpoints: is}
}

// elect returns those endpoints that have a name.
func elect(all *registry.Endpoints, of func(registry.Addr) string, name string) *registry.Endpoints {
	elected := &registry.Endpoints{Name: all.Name, Weights: all.Weights}
	if name == "" {
		return elected
	}
	for _, p := range all.ByPort {
		var few []registry.Addr
		places := make(map[registry.Addr]registry.Place)
		i := 0
		for a := range p.Addrs.All() {
			if of(a) == name {
				few, places[a] = append(few, a), p.Places.At(i)
			}
			i++
		}
		if len(few) > 0 {
			of := registry.PortAddrs{Port: p.Port, Addrs: registry.NewAddrs(few...)}
			of.Places = registry.PlacesOf(of.Addrs, func(a registry.Addr) registry.Place { return places[a] })
			elected.ByPort = append(elected.ByPort, of)
		}
	}
	return elected
}

// Untold notes that the watch of a key is new. No watch should have told what changed before: if the next list of the key finds that, it is no divergence.
func (s *State) Untold(key string) {
	if e := s.elections[key]; e != nil {
		e.untold = true
	}
}

// Refuse notes that a key cannot be read. If it never was, its services have no endpoints until it is; Refuse reports whether that is news.
func (s *State) Refuse(key string) bool {
	e := s.elections[key]
	if e == nil || e.known || e.refused {
		return false
	}
	e.refused = true
	s.touch(e)
	return true
}

// mergeHolders notes what a list says of a key and of those below it, as of its revision, but for keys that the watch has spoken of since. It reports
// each key that was different from what was known.
func (s *State) mergeHolders(l listed, revision int64, touched map[string]int64, differs func(key string, since int64)) {
	e := s.elections[l.key]
	if e == nil {
		return
	}
	if e.untold {
		e.untold = false
		note := differs
		differs = func(key string, _ int64) { note(key, math.MaxInt64) }
	}
	switch {
	case e.cluster != nil:
		s.mergeMembers(e, l.says, revision, touched, differs)
	case touched[l.key] > revision:
	case len(l.says) == 0:
		if s.setHolder(e, Holder{Key: l.key, Gone: true, Seen: revision}) {
			differs(l.key, revision)
		}
	default:
		h := l.says[0]
		h.Seen = revision
		if s.setHolder(e, h) {
			differs(l.key, revision)
		}
	}
}
