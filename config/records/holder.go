package records

import (
	"maps"
	"slices"

	"github.com/golang/glog"

	"kubeproxy/registry"
	"kubeproxy/registry/names"
)

// How a key outside the registry elects endpoints. A service names the key. Of the endpoints that its records list, those are in force which they
// call by the value of the key. The source watches the key beside the registry. Until it has read the key, what was in force before stays.

// HolderKeys returns the keys that services name, in their order.
func (s *State) HolderKeys() []string {
	s.follow()
	return slices.Sorted(maps.Keys(s.holders))
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
		if key == was {
			continue
		}
		if h := s.holders[was]; h != nil {
			if delete(h.services, o.name); len(h.services) == 0 {
				delete(s.holders, was)
			}
		}
		if s.follows[o.name] = key; key == "" {
			delete(s.follows, o.name)
		} else if h := s.holders[key]; h != nil {
			h.services[o.name] = true
		} else {
			s.holders[key] = &followed{Holder: Holder{Key: key}, services: map[registry.Name]bool{o.name: true}}
		}
		s.dirty = append(s.dirty, object{registry.KindEndpoints, o.name})
	}
}

// SetHolder notes a change of a key. One that is older than what is known of the key changes nothing.
func (s *State) SetHolder(h Holder) {
	if k := s.holders[h.Key]; k != nil && (!k.known || h.Seen > k.Seen) {
		s.setHolder(k, h)
	}
}

// setHolder notes what a key says, and reports whether that differs from what was known.
func (s *State) setHolder(k *followed, h Holder) (different bool) {
	different = k.known && k.Value != h.Value
	if !k.known || different {
		for name := range k.services {
			s.dirty = append(s.dirty, object{registry.KindEndpoints, name})
		}
		s.logHolder(k, h)
	}
	k.Holder, k.known = h, true
	return different
}

// logHolder logs what a key says now.
func (s *State) logHolder(k *followed, h Holder) {
	note, ok := s.complaints.Allow(complaint{key: k.Key, sum: uint64(h.Seen)})
	if !ok {
		return
	}
	var of Tally
	for _, name := range slices.SortedFunc(maps.Keys(k.services), registry.Name.Compare) {
		of.Add(name.String())
	}
	if h.Value == "" {
		glog.Warningf("key %s does not exist at revision %d: it elects no endpoint of %s%s", registry.Quote(k.Key), h.Seen, of, note)
		return
	}
	glog.Infof("key %s elects %s at revision %d, among the endpoints of %s%s", registry.Quote(k.Key), registry.Quote(h.Value), h.Seen, of, note)
}

// elected returns what is in force of what the records of a service say, by the key that it names.
func (s *State) elected(name registry.Name, says content) content {
	k := s.holders[s.follows[name]]
	if k == nil || says.endpoints == nil {
		return says
	}
	now := s.endpoints[name]
	if !k.known {
		return content{endpoints: now}
	}
	is := elect(says.endpoints, says.names.Of(), k.Value)
	if is.Equal(now) {
		return content{endpoints: now}
	}
	if len(is.ByPort) == 0 && len(says.endpoints.ByPort) > 0 && k.Value != "" {
		if note, ok := s.complaints.Allow(complaint{key: name.String() + " " + k.Key, sum: uint64(k.Seen)}); ok {
			glog.Warningf("endpoints of %v: none is called %s, as key %s has it: annotation %s names them%s", name, registry.Quote(k.Value), registry.Quote(k.Key), names.Annotation, note)
		}
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
