package config

import (
	"slices"
	"time"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// A store keeps what each source says, and works out what a change of that means for the merged state. It
// has no lock: the broadcaster's guards it.
type store struct {
	services  layers[registry.Service]
	endpoints layers[registry.Endpoints]
	revision  int64     // of the newest change of the merged state
	oldest    time.Time // when the oldest of all the changes to the merged state was received
}

// An outcome is how the merged state changes, as one step.
type outcome struct {
	received  time.Time
	revision  int64
	services  []change[registry.Service]
	endpoints []change[registry.Endpoints]
}

// A change is what becomes of one object in the merged state. There, nil stands for no such object.
type change[T any] struct {
	name          registry.Name
	before, after *T
}

func newStore() store {
	return store{services: layers[registry.Service]{kind: services}, endpoints: layers[registry.Endpoints]{kind: endpoints}}
}

// addLayer makes room for a source below those that are there. What it says may be ranked already, as it was when sources said it.
func (s *store) addLayer(source string, ranked bool) {
	s.services.add(source, ranked)
	s.endpoints.add(source, ranked)
}

// apply notes what one source says and returns how that changes the merged state, whether the update
// was a SET or not.
func (s *store) apply(precedence int, u registry.Update) outcome {
	o := outcome{
		received:  u.Received,
		revision:  u.Revision,
		services:  s.services.apply(precedence, u.Set, u.Services),
		endpoints: s.endpoints.apply(precedence, u.Set, u.Endpoints),
	}
	if o.empty() {
		return o
	}
	s.revision = o.revision
	if s.oldest.IsZero() || o.received.Before(s.oldest) {
		s.oldest = o.received
	}
	return o
}

// everything returns the merged state, as the outcome that it is for those who know nothing yet. When
// each object was received is not kept: all of them are as old as the oldest change there was.
func (s *store) everything() outcome {
	return outcome{s.oldest, s.revision, s.services.everything(), s.endpoints.everything()}
}

// and returns a step that has the changes of another one after those of o.
func (o outcome) and(other outcome) outcome {
	o.services, o.endpoints = append(o.services, other.services...), append(o.endpoints, other.endpoints...)
	return o
}

func (o outcome) empty() bool { return len(o.services)+len(o.endpoints) == 0 }

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
	ranked bool // its values are
	said   map[registry.Name]statement[T]
}

// A statement is what one source says of one object. Its round tells when it was last made: after a
// SET, one of an earlier round was not repeated, and so is void.
type statement[T any] struct {
	value *T // never nil
	round uint64
}

func (l *layers[T]) add(source string, ranked bool) {
	l.layers = append(l.layers, layer[T]{source, ranked, make(map[registry.Name]statement[T])})
}

// apply notes a list of changes, or all that the source has to say, and returns what that changes in
// the merged state.
func (l *layers[T]) apply(precedence int, set bool, list []registry.Change[T]) []change[T] {
	var merged []change[T]
	if set { // most of what it lists is known
		l.round++
	} else {
		merged = make([]change[T], 0, len(list))
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
func (l *layers[T]) note(merged []change[T], precedence int, c registry.Change[T]) []change[T] {
	mine := l.layers[precedence]
	before := mine.said[c.Name].value
	if l.kind.same(before, c.Value) { // which holds for a REMOVE of something unknown, too
		if before != nil {
			mine.said[c.Name] = statement[T]{before, l.round}
		}
		return merged
	}
	if !mine.ranked {
		c.Value = l.kind.ranked(c.Value, precedence)
	}
	after := c.Value
	mine.replace(c, l.round)
	above, _ := find(l.layers[:precedence], c.Name)
	below, shadow := find(l.layers[precedence+1:], c.Name)
	if v := glog.V(3); v {
		v.Infof("%s: %s %s %s", mine.source, l.kind.noun, c.Name, decision(before, after, above, below))
	}
	if above != "" {
		return merged // it waits in the shadow of another source's
	}
	if before == nil {
		before = shadow
	}
	if after == nil {
		after = shadow
	}
	return append(merged, change[T]{c.Name, before, after})
}

// everything goes through the layers from the top, and leaves out what lies in the shadow.
func (l *layers[T]) everything() []change[T] {
	var merged []change[T]
	for i, layer := range l.layers {
		merged = slices.Grow(merged, len(layer.said))
		for name, s := range layer.said {
			if above, _ := find(l.layers[:i], name); above == "" {
				merged = append(merged, change[T]{name: name, after: s.value})
			}
		}
	}
	return merged
}

// replace puts the source's new statement in the place of the one before.
func (l layer[T]) replace(c registry.Change[T], round uint64) {
	if c.Value == nil {
		delete(l.said, c.Name)
	} else {
		l.said[c.Name] = statement[T]{c.Value, round}
	}
}

// find returns the topmost of some layers that has the object: whose it is, and what it says. No
// source is called "", so that means none.
func find[T any](layers []layer[T], name registry.Name) (source string, value *T) {
	for _, l := range layers {
		if s, ok := l.said[name]; ok {
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
