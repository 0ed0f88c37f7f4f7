package recent

import (
	"maps"
	"sync"
	"time"

	"kubeproxy/registry"
)

// How old may be what is shown again: ShownFor at least, and so much that to read it costs at most 1/MaxCost of the time of one processor.
const (
	ShownFor = 900 * time.Millisecond
	MaxCost  = 50
)

const (
	maxLists    = 32               // services
	forgetsList = 10 * time.Second // after the last look: a page that is open looks each second
	listBurst   = time.Second      // how far lists may run ahead of their share of the time, so that short ones need not wait for each other
)

// Lists are what is listed of each service that somebody looks at. All lists together cost at most 1/MaxCost of the time of one processor, and
// each service that is looked at gets its share of that. The zero value has none.
type Lists[T any] struct {
	mu   sync.Mutex // held while a list is taken: viewers wait for each other
	of   map[registry.Name]*list[T]
	paid time.Time // when MaxCost times what all lists took will have passed
}

type list[T any] struct {
	what       T
	at, looked time.Time
	took       time.Duration
}

// Drop forgets all lists.
func (ls *Lists[T]) Drop() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.of = nil
}

// Of returns the list of a service as it is now, or was a while ago; false: there is none, and no time for another.
func (ls *Lists[T]) Of(name registry.Name, take func() T) (latest T, ok bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(ls.of, func(_ registry.Name, l *list[T]) bool { return now.Sub(l.looked) > forgetsList })
	l, wait := ls.of[name], ls.paid.Sub(now) > listBurst
	switch {
	case l != nil && (wait || now.Sub(l.at) <= max(ShownFor, MaxCost*l.took*time.Duration(len(ls.of)))):
		l.looked = now
		return l.what, true
	case wait:
		return latest, false
	}
	l = &list[T]{what: take(), at: now, looked: now, took: time.Since(now)}
	ls.keep(name, l)
	return l.what, true
}

// keep keeps a list for the next look, if there is room, and pays for it.
func (ls *Lists[T]) keep(name registry.Name, l *list[T]) {
	if ls.paid.Before(l.at) {
		ls.paid = l.at
	}
	ls.paid = ls.paid.Add(MaxCost * l.took)
	if ls.of == nil {
		ls.of = make(map[registry.Name]*list[T])
	}
	if ls.of[name] != nil || len(ls.of) < maxLists {
		ls.of[name] = l
	}
}
