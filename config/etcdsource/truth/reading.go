package truth

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"kubeproxy/registry"
)

// A reading is one way in which all Updates so far are true: the last one was the state of this era
// at this revision. It also remembers what the source was given, because for a key whose newest value
// does not decode the invariant asks for the newest value of that life that did, and that the source
// has seen.
type reading struct {
	era      *Era
	revision int64
	given    map[string][]*Version // by key: what the source may hold of it, nil for nothing; no entry means nil alone
}

// next reads u as the state of era e, which is r's own or a later one. An error says why it cannot
// be that.
func (r *reading) next(u registry.Update, e *Era) (*reading, error) {
	common := shared(r.era, e)
	switch {
	case e == r.era && u.Revision < r.revision:
		return nil, fmt.Errorf("the revision went back from %d to %d, and etcd did not", r.revision, u.Revision)
	case e != r.era && !u.Set && common < r.revision:
		return nil, fmt.Errorf("a change from %d to %d continues a history that ended at %d", r.revision, u.Revision, common)
	case u.Revision > e.Head():
		return nil, fmt.Errorf("revision %d, but etcd came no further than %d", u.Revision, e.Head())
	case !u.Set && !e.wroteAt(u.Revision):
		return nil, fmt.Errorf("a change at revision %d, but nothing below the prefix was written then", u.Revision)
	}
	known := min(r.revision, common, u.Revision) // up to here r speaks of e's own history
	next := &reading{era: e, revision: u.Revision, given: make(map[string][]*Version)}
	for key, v := range e.State(u.Revision) {
		missed := e.goodOf(key, v.Created, known, u.Revision)
		switch {
		case v.Good:
			next.given[key] = []*Version{v}
		case r.revision == 0:
			next.given[key] = []*Version{nil} // the first SET: it was given this one value
		case !u.Set && len(missed) > 0:
			next.given[key] = missed[len(missed)-1:] // a watch hands over every value
		case !u.Set:
			next.given[key] = r.stillGiven(v, e, known)
		default: // a list: the values in between may have been missed
			next.given[key] = append(r.stillGiven(v, e, known), missed...)
		}
	}
	return next, nil
}

// stillGiven returns what the source may hold from before for the key of v, an undecodable value, in
// the life that v belongs to.
func (r *reading) stillGiven(v *Version, e *Era, known int64) []*Version {
	var still []*Version
	for _, old := range r.mayHold(v.Key) {
		switch {
		case old == nil || old.Created != v.Created:
			still = append(still, nil) // a delete or a re-creation ends the last good version
		case old.Revision <= known:
			still = append(still, old)
		default:
			// It was written in an era that is over. When the same create revision has come again,
			// the source cannot tell the two lives apart and may keep it, unless it is younger than
			// the value that is the newest now.
			still = append(still, nil)
			still = append(still, e.goodOf(v.Key, v.Created, 0, known)...)
			if old.Revision <= v.Revision {
				still = append(still, old)
			}
		}
	}
	return distinct(still)
}

// mayHold returns what the source may hold for key: versions, or nil for nothing.
func (r *reading) mayHold(key string) []*Version {
	if given, ok := r.given[key]; ok {
		return given
	}
	return []*Version{nil}
}

// match compares what is held with what the reading demands, object by object. Where more than one
// version may be held, it forgets those that are plainly not.
func (r *reading) match(held *holding) error {
	var differences []string
	objects := r.era.objects()
	for _, o := range slices.SortedFunc(maps.Keys(objects), object.compare) {
		keys := objects[o]
		explain := make([][]*Version, len(keys)) // the versions of each key that explain what is held
		for versions := range r.combinations(keys) {
			if held.is(o, o.says(versions)) {
				for i, v := range versions {
					explain[i] = append(explain[i], v)
				}
			}
		}
		if len(explain[0]) == 0 {
			differences = append(differences, r.difference(o, keys, held))
			continue
		}
		for i, key := range keys {
			r.given[key] = distinct(explain[i])
		}
	}
	for _, o := range held.objects() {
		if _, ok := objects[o]; !ok {
			differences = append(differences, fmt.Sprintf("%v: the source holds %s; no such key was ever written", o, held.describe(o)))
		}
	}
	if len(differences) > 0 {
		return fmt.Errorf("%s", strings.Join(differences, "\n    "))
	}
	return nil
}

// combinations gives each way in which the source may hold a version of every key.
func (r *reading) combinations(keys objectKeys) iter.Seq[[]*Version] {
	return func(yield func([]*Version) bool) {
		versions := make([]*Version, len(keys))
		var choose func(i int) bool
		choose = func(i int) bool {
			if i == len(keys) {
				return yield(versions)
			}
			for _, v := range r.mayHold(keys[i]) {
				if versions[i] = v; !choose(i + 1) {
					return false
				}
			}
			return true
		}
		choose(0)
	}
}

// difference says what is held, what should be, and what was written.
func (r *reading) difference(o object, keys objectKeys, held *holding) string {
	var demanded []string
	for versions := range r.combinations(keys) {
		demanded = append(demanded, o.says(versions).String())
	}
	slices.Sort(demanded)
	text := fmt.Sprintf("%v: the source holds %s%s; the registry demands %s",
		o, held.describe(o), r.origin(o, keys, held), strings.Join(slices.Compact(demanded), " or "))
	for _, key := range keys {
		if key != "" {
			text += "\n        " + r.era.story(key, r.revision)
		}
	}
	return text
}

// origin finds out where a wrong value comes from, if it was ever right.
func (r *reading) origin(o object, keys objectKeys, held *holding) string {
	for e := r.era; e != nil; e = e.before {
		for _, key := range keys[:atSlices] {
			for _, v := range slices.Backward(e.keys[key]) {
				switch {
				case !v.Good || !held.is(o, o.says([]*Version{v, nil})):
				case e != r.era:
					return fmt.Sprintf(" (of revision %d in era %d, which is over)", v.Revision, e.number)
				case v.Revision > r.revision:
					return fmt.Sprintf(" (of revision %d, which is still to come)", v.Revision)
				default:
					return fmt.Sprintf(" (of revision %d, which is overtaken)", v.Revision)
				}
			}
		}
	}
	return ""
}

// merge adds a reading to those that stand. Two that speak of one era differ only in what the source
// may hold: together they allow both.
func merge(standing []*reading, next *reading) []*reading {
	for _, r := range standing {
		if r.era == next.era {
			for key := range next.given {
				r.given[key] = distinct(append(r.mayHold(key), next.given[key]...))
			}
			return standing
		}
	}
	return append(standing, next)
}

// distinct returns the versions without repeats.
func distinct(versions []*Version) []*Version {
	var d []*Version
	for _, v := range versions {
		if !slices.Contains(d, v) {
			d = append(d, v)
		}
	}
	return d
}
