package truth

import (
	"slices"
	"sync"

	"kubeproxy/registry"
)

// A Recorder stands where the Mux stands: it takes every Update of the source and applies it to maps
// of its own. After each one it holds these against the history, at exactly that Update's revision.
//
// Which era an Update speaks of is not written on it, and one that was on its way when etcd was
// killed still speaks of the old one. So the Recorder keeps every [reading] under which all Updates so
// far are true, and fails when none is left.
type Recorder struct {
	history *History

	mu       sync.Mutex // guards the fields below
	held     holding
	readings []*reading
	updates  int           // how many were applied
	sets     int           // how many of them were SETs
	trace    []string      // the last few Updates, for the message of a failure
	err      error         // the first failure; nothing is compared after it
	failed   chan struct{} // closed with the first failure
	moved    chan struct{} // closed and replaced after every Update
}

// A holding is the sum of the Updates so far.
type holding struct {
	services  map[registry.Name]*registry.Service
	endpoints map[registry.Name]*registry.Endpoints
}

// apply does what a Mux does with an Update.
func (h *holding) apply(u registry.Update) {
	if u.Set {
		clear(h.services)
		clear(h.endpoints)
	}
	for _, c := range u.Services {
		if c.Value == nil {
			delete(h.services, c.Name)
		} else {
			h.services[c.Name] = c.Value
		}
	}
	for _, c := range u.Endpoints {
		if c.Value == nil {
			delete(h.endpoints, c.Name)
		} else {
			h.endpoints[c.Name] = c.Value
		}
	}
}

// is reports whether this is held of o.
func (h *holding) is(o object, c content) bool {
	if o.kind == registry.KindService {
		return h.services[o.name].Equal(c.service)
	}
	return h.endpoints[o.name].Equal(c.endpoints)
}

// objects lists what is held, in order.
func (h *holding) objects() []object {
	var objects []object
	for name := range h.services {
		objects = append(objects, object{registry.KindService, name})
	}
	for name := range h.endpoints {
		objects = append(objects, object{registry.KindEndpoints, name})
	}
	slices.SortFunc(objects, object.compare)
	return objects
}

// describe shows what is held of o.
func (h *holding) describe(o object) string {
	if o.kind == registry.KindService {
		return describeService(h.services[o.name])
	}
	return describeEndpoints(h.endpoints[o.name])
}
