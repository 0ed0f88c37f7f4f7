package main

import (
	"slices"
	"sync"
	"time"

	"kubeproxy/registry"
)

// told remembers what the node was told of the endpoints of the steady services, and when: so that it
// can be said of each answer that a client got whether that backend was in the record. Whether what
// the node was told is true is the recorder's business.
type told struct {
	mu      sync.Mutex // guards the fields below
	records map[registry.Name][]record
}

// A record was in force from the moment it was told until the next one was.
type record struct {
	from  time.Time
	addrs []string // nil: no endpoints at all
}

// lag is how long a record may go on being acted on after the next one was handed to the Mux: queues are
// emptied by goroutines of their own, on a machine that is busy.
const lag = time.Second

// memory is for how long records are kept: longer than any client waits.
const memory = 4 * clientPatience

// watch begins to remember a service.
func (t *told) watch(name registry.Name) {
	if t.records == nil {
		t.records = make(map[registry.Name][]record)
	}
	t.records[name] = []record{{}}
}

// update takes in an Update that was handed to the Mux at the given moment.
func (t *told) update(u *registry.Update, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	named := make(map[registry.Name]bool)
	for _, c := range u.Endpoints {
		records, steady := t.records[c.Name]
		if !steady {
			continue
		}
		named[c.Name] = true
		var addrs []string
		if c.Value != nil {
			for a := range c.Value.Of("").All() {
				addrs = append(addrs, a.String())
			}
		}
		t.records[c.Name] = add(records, record{at, addrs})
	}
	if !u.Set {
		return
	}
	for name, records := range t.records {
		if !named[name] {
			t.records[name] = add(records, record{at, nil})
		}
	}
}

// add appends a record, and forgets those that are long over.
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

// allowed tells whether a client that was busy from begin to end may have been answered by addr.
func (t *told) allowed(name registry.Name, addr string, begin, end time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	records := t.records[name]
	for i, r := range records {
		if r.from.After(end) {
			return false
		}
		over := i+1 < len(records) && begin.Sub(records[i+1].from) > lag
		if !over && slices.Contains(r.addrs, addr) {
			return true
		}
	}
	return false
}
