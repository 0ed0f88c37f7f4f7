package records

import (
	"slices"

	"kubeproxy/config"
)

// A listing is what operators are shown of one kind: at most [config.MaxRejections] keys, and how many there are. The zero value is empty.
type listing[T any] struct {
	all     int  // listed or not
	shown   []*T // some of them, in no order
	changed bool // since sorted was called last
}

// add lists x if there is room and it is not listed yet, and reports whether it did.
func (l *listing[T]) add(x *T) bool {
	if x == nil || len(l.shown) >= config.MaxRejections || slices.Contains(l.shown, x) {
		return false
	}
	l.shown, l.changed = append(l.shown, x), true
	return true
}

// hasMore reports whether there is room for a key that is not listed.
func (l *listing[T]) hasMore() bool { return len(l.shown) < min(l.all, config.MaxRejections) }

// drop takes x off the list, if it is on it.
func (l *listing[T]) drop(x *T) {
	if i := slices.Index(l.shown, x); i >= 0 {
		l.shown, l.changed = slices.Delete(l.shown, i, i+1), true
	}
}

// sorted gives the list in an order, if it has changed since the last time.
func (l *listing[T]) sorted(compare func(a, b T) int) (list []T, changed bool) {
	if !l.changed {
		return nil, false
	}
	l.changed = false
	for _, x := range l.shown {
		list = append(list, *x)
	}
	slices.SortFunc(list, compare)
	return list, true
}
