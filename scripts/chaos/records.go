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
	mu     sync.Mutex // guards the fields below
	of     map[registry.Name][]record
	pauses []pause // of the proxy, in their order
}

// A pause is a time in which the proxy was stopped.
type pause struct{ from, to time.Time } // to is zero until it goes on

// A record was in force from its Update until the next one.
type record struct {
	from  time.Time
	addrs []string // nil for none
}

// lag is how long the proxy may run and use a record after the Mux received the next one: each queue has a goroutine of its own, and the
// machine is busy.
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

// Pause notes that the proxy stops. It is harmless while the proxy is stopped.
func (r *records) Pause(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.pauses); n == 0 || !r.pauses[n-1].to.IsZero() {
		r.pauses = append(r.pauses, pause{from: at})
	}
}

// Resume notes that the proxy goes on. It is harmless while the proxy runs.
func (r *records) Resume(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.pauses); n > 0 && r.pauses[n-1].to.IsZero() {
		r.pauses[n-1].to = at
	}
}

// ranLocked is how long the proxy ran between two times.
func (r *records) ranLocked(from, to time.Time) time.Duration {
	ran := to.Sub(from)
	for _, p := range r.pauses {
		begin, end := p.from, p.to
		if begin.Before(from) {
			begin = from
		}
		if end.IsZero() || end.After(to) {
			end = to
		}
		ran -= max(0, end.Sub(begin))
	}
	return ran
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
		over := i+1 < len(records) && r.ranLocked(records[i+1].from, begin) > lag
		if !over && slices.Contains(rec.addrs, addr) {
			return true
		}
	}
	return false
}
