package main

import (
	"slices"
	"sync"
	"time"

	"kubeproxy/registry"
)

// records keep which endpoints the services had in the Updates of the source, and when. Whether the Updates are right is checked by
// package truth.
type records struct {
	mu sync.Mutex // guards the fields below
	of map[registry.Name][]record
}

// A record was in force from its Update until the next one.
type record struct {
	from  time.Time
	addrs []string // nil for none
}

// lag is how long the proxy may use a record after the Mux received the next one: each queue has a goroutine of its own, and the machine
// is busy.
const lag = time.Second

// memory is how long records are kept: longer than any client waits.
const memory = 4 * clientTimeout

// newRecords keeps the records of these services.
func newRecords(services []*service) *records {
	r := &records{of: make(map[registry.Name][]record)}
	for _, s := range services {
		r.of[s.name] = []record{{}}
	}
	return r
}

// Update adds an Update that the Mux received at the given time.
func (r *records) Update(u *registry.Update, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	named := make(map[registry.Name]bool)
	for _, c := range u.Endpoints {
		records, kept := r.of[c.Name]
		if !kept {
			continue
		}
		named[c.Name] = true
		var addrs []string
		if c.Value != nil {
			for a := range c.Value.Of("").All() {
				addrs = append(addrs, a.String())
			}
		}
		r.of[c.Name] = add(records, record{at, addrs})
	}
	if !u.Set {
		return
	}
	for name, records := range r.of {
		if !named[name] {
			r.of[name] = add(records, record{at, nil})
		}
	}
}

// add appends a record, and forgets those that ended long ago.
func add(records []record, next record) []record {
	if slices.Equal(records[len(records)-1].addrs, next.addrs) {
		return records
	}
	old := 0
	for old < len(records)-1 && next.from.Sub(records[old+1].from) > memory {
		old++
	}
	return append(slices.Delete(records, 0, old), next)
}

// allowed reports whether addr may have answered a client between begin and end.
func (r *records) allowed(name registry.Name, addr string, begin, end time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	records := r.of[name]
	for i, rec := range records {
		if rec.from.After(end) {
			return false
		}
		over := i+1 < len(records) && begin.Sub(records[i+1].from) > lag
		if !over && slices.Contains(rec.addrs, addr) {
			return true
		}
	}
	return false
}
