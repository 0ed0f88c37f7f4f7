package config

import (
	"github.com/golang/glog"

	"kubeproxy/registry"
)

// A store keeps what each source says, and works out what a change of that means for everybody. It
// has no lock: the mux's guards it.
type store struct {
	services  layers[registry.Service]
	endpoints layers[registry.Endpoints]
}

func newStore() store {
	return store{layers[registry.Service]{kind: services}, layers[registry.Endpoints]{kind: endpoints}}
}

// addLayer makes room for a source below those that are there.
func (s *store) addLayer(source string) {
	s.services.add(source)
	s.endpoints.add(source)
}

// apply notes what one source says and returns how that changes the merged state: plain changes,
// whether the update was a SET or not.
func (s *store) apply(precedence int, u registry.Update) registry.Update {
	return registry.Update{
		Received:  u.Received,
		Services:  s.services.apply(precedence, u.Set, u.Services),
		Endpoints: s.endpoints.apply(precedence, u.Set, u.Endpoints),
	}
}

// layers hold all objects of one kind: a layer for each source, the one of highest precedence on
// top. The merged state is not kept anywhere. It is what is seen from above.
type layers[T any] struct {
	kind   kind[T]
	layers []layer[T] // the top one first
	round  uint64     // counts the SETs to all layers
}

// A layer is what one source says.
type layer[T any] struct {
	source string
	said   map[registry.Name]*statement[T]
}

// A statement is what one source says of one object. Its round tells when it was last made: after a
// SET, one of an earlier round was not repeated, and so is void.
type statement[T any] struct {
	value *T // never nil
	round uint64
}

func (l *layers[T]) add(source string) {
	l.layers = append(l.layers, layer[T]{source, make(map[registry.Name]*statement[T])})
}

// apply notes a list of changes, or all that the source has to say, and returns what that changes in
// the merged state.
func (l *layers[T]) apply(precedence int, set bool, list []registry.Change[T]) []registry.Change[T] {
	var merged []registry.Change[T]
	if set {
		l.round++
	}
	for _, c := range list {
		if set && c.Value == nil {
			continue // no word that a SET knows: as if it were not there
		}
		merged = l.note(merged, precedence, c)
	}
	if set {
		for name, s := range l.layers[precedence].said {
			if s.round != l.round {
				merged = l.note(merged, precedence, registry.Change[T]{Name: name})
			}
		}
	}
	return merged
}

// note takes down what one source now says of one object, and appends to merged what that changes
// there, if anything. If what comes to light equals what lay above it, the queues will notice.
func (l *layers[T]) note(merged []registry.Change[T], precedence int, c registry.Change[T]) []registry.Change[T] {
	mine := l.layers[precedence]
	before, after := mine.replace(c, l.round), c.Value
	if l.kind.same(before, after) { // which holds for a REMOVE of something unknown, too
		return merged
	}
	above, _ := find(l.layers[:precedence], c.Name)
	below, shadow := find(l.layers[precedence+1:], c.Name)
	if v := glog.V(3); v {
		v.Infof("%s: %s %s %s", mine.source, l.kind.noun, c.Name, decision(before, after, above, below))
	}
	if above != "" {
		return merged // it waits in the shadow of another source's
	}
	if after == nil {
		after = shadow
	}
	return append(merged, registry.Change[T]{Name: c.Name, Value: after})
}

// replace puts the source's new statement in the place of the one before, and returns the value of
// that: nil if there was none.
func (l layer[T]) replace(c registry.Change[T], round uint64) (before *T) {
	s := l.said[c.Name]
	if s != nil {
		before = s.value
	}
	switch {
	case c.Value == nil:
		delete(l.said, c.Name)
	case s == nil:
		l.said[c.Name] = &statement[T]{c.Value, round}
	default:
		*s = statement[T]{c.Value, round}
	}
	return before
}

// find returns the topmost of some layers that has the object: whose it is, and what it says. No
// source is called "", so that means none.
func find[T any](layers []layer[T], name registry.Name) (source string, value *T) {
	for _, l := range layers {
		if s := l.said[name]; s != nil {
			return l.source, s.value
		}
	}
	return "", nil
}

// decision puts in words what becomes of an object when its source says something else than before.
func decision[T any](before, after *T, above, below string) string {
	what := "changed"
	switch {
	case before == nil:
		what = "added"
	case after == nil:
		what = "removed"
	}
	switch {
	case above != "":
		what += ", in the shadow of " + above
	case below != "" && before == nil:
		what += ", in front of " + below
	case below != "" && after == nil:
		what += "; " + below + " takes over"
	}
	return what
}
