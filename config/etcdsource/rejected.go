package etcdsource

import (
	"cmp"
	"slices"
	"strings"

	"kubeproxy/registry"
)

// A Rejection is a key whose newest value cannot be used, or that cannot be the key of a record. It
// hurts nobody but itself, and is nobody's news for long: so whoever wants to mend it can ask for it.
type Rejection struct {
	Key      string // one printable line, cut where it is too long
	Kind     registry.Kind
	Reason   string
	Revision int64 // at which the value was written
}

// MaxRejections is how many rejected keys a [Status] lists.
const MaxRejections = 100

func rejection(v version, err error) *Rejection {
	rejected := &Rejection{Key: oneLine(v.key), Reason: oneLine(err.Error()), Revision: v.modified}
	if strings.HasPrefix(v.key, registry.EndpointsPrefix) {
		rejected.Kind = registry.KindEndpoints
	}
	return rejected
}

// markLocked notes why the newest value of a key cannot be used, nil that it can.
func (r *records) markLocked(e *entry, why *Rejection) {
	was := e.bad()
	if was != nil {
		r.invalid--
		if i := slices.Index(r.listed, was); i >= 0 {
			r.listed, r.relisted = slices.Delete(r.listed, i, i+1), true
		}
		e.trouble.bad = nil
	}
	if why == nil {
		return
	}
	t := e.troubled()
	if was == nil {
		t.goodAt = e.seen // which was good, or is 0
	}
	t.bad = why
	r.invalid++
	r.list(e)
}

// list puts a rejected key on the list, if there is room. As every list of etcd's keys passes here, one
// that found no room at first gets it later.
func (r *records) list(e *entry) {
	if bad := e.bad(); bad != nil && len(r.listed) < MaxRejections && !slices.Contains(r.listed, bad) {
		r.listed, r.relisted = append(r.listed, bad), true
	}
}

// rejections gives the list as it is now, sorted by key, if it has changed since the last time.
func (r *records) rejections() (list []Rejection, changed bool) {
	if !r.relisted {
		return nil, false
	}
	r.relisted = false
	for _, rejected := range r.listed {
		list = append(list, *rejected)
	}
	slices.SortFunc(list, func(a, b Rejection) int { return cmp.Compare(a.Key, b.Key) })
	return list, true
}
