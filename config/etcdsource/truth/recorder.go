package truth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kubeproxy/registry"
)

// NewRecorder returns a recorder that has seen nothing yet. The history has its first era.
func NewRecorder(h *History) *Recorder {
	return &Recorder{
		history: h,
		held: holding{
			services:  make(map[registry.Name]*registry.Service),
			endpoints: make(map[registry.Name]*registry.Endpoints),
		},
		readings: []*reading{{era: h.eras[0]}},
		failed:   make(chan struct{}),
		moved:    make(chan struct{}),
	}
}

// Run records until updates is closed. After a failure it only empties the channel, so that the
// source can still be stopped.
func (r *Recorder) Run(updates <-chan registry.Update) {
	for u := range updates {
		r.Record(u)
	}
}

// Record applies one Update and compares.
func (r *Recorder) Record(u registry.Update) {
	r.history.mu.Lock() // waits for a write that is under way: the Update may already speak of it
	defer r.history.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return
	}
	r.updates++
	if u.Set {
		r.sets++
	}
	r.trace = append(r.trace, fmt.Sprintf("%5d %s", r.updates, describeUpdate(u)))
	r.trace = r.trace[max(0, len(r.trace)-15):]
	if err := r.checkForm(u); err != nil {
		r.err = fmt.Errorf("update %d (%s) is malformed: %w\n%s", r.updates, describeUpdate(u), err, r.lastUpdates())
	} else {
		r.held.apply(u)
		r.err = r.compareLocked(u)
	}
	if r.err != nil {
		close(r.failed)
	}
	close(r.moved)
	r.moved = make(chan struct{})
}

// checkForm holds an Update to what package registry says of its words.
func (r *Recorder) checkForm(u registry.Update) error {
	switch {
	case r.updates == 1 && !u.Set:
		return fmt.Errorf("the first update must be a SET")
	case u.Received.IsZero():
		return fmt.Errorf("it does not say when it was received")
	}
	seen := make(map[object]bool)
	check := func(o object, called registry.Name, removed bool) error {
		switch {
		case seen[o]:
			return fmt.Errorf("it speaks of %v twice", o)
		case removed && u.Set:
			return fmt.Errorf("a SET removes %v", o)
		case !removed && called != o.name:
			return fmt.Errorf("it calls %v %v", o, called)
		}
		seen[o] = true
		return nil
	}
	for _, c := range u.Services {
		var called registry.Name
		if c.Value != nil {
			called = c.Value.Name
		}
		if err := check(object{registry.KindService, c.Name}, called, c.Value == nil); err != nil {
			return err
		}
	}
	for _, c := range u.Endpoints {
		var called registry.Name
		if c.Value != nil {
			called = c.Value.Name
		}
		if err := check(object{registry.KindEndpoints, c.Name}, called, c.Value == nil); err != nil {
			return err
		}
	}
	return nil
}

// compareLocked keeps the readings that the Update leaves standing. Eras only move forward.
func (r *Recorder) compareLocked(u registry.Update) error {
	var standing []*reading
	var fallen []string
	for _, old := range r.readings {
		for _, e := range r.history.eras[old.era.number:] {
			next, err := old.next(u, e)
			if err == nil {
				err = next.match(&r.held)
			}
			if err != nil {
				fallen = append(fallen, fmt.Sprintf("read as era %d (after era %d at %d): %v", e.number, old.era.number, old.revision, err))
				continue
			}
			standing = merge(standing, next)
		}
	}
	if len(standing) == 0 {
		// The shortest complaint comes first: it is the nearest to the truth.
		slices.SortStableFunc(fallen, func(a, b string) int { return cmp.Compare(strings.Count(a, "\n"), strings.Count(b, "\n")) })
		return fmt.Errorf("after update %d (%s) the source differs from the registry at revision %d:\n%s\n%s",
			r.updates, describeUpdate(u), u.Revision, strings.Join(fallen, "\n"), r.lastUpdates())
	}
	slices.SortFunc(standing, func(a, b *reading) int { return cmp.Compare(a.era.number, b.era.number) })
	r.readings = standing
	return nil
}

// WaitFor blocks until the newest era stands alone at revision or later, and fails when a comparison
// failed or when ctx is done first.
func (r *Recorder) WaitFor(ctx context.Context, revision int64) error {
	for {
		r.history.mu.Lock()
		newest := r.history.Newest()
		r.history.mu.Unlock()
		r.mu.Lock()
		last, err, moved := r.readings[len(r.readings)-1], r.err, r.moved
		if err == nil && last.era == newest && last.revision >= revision {
			r.readings = []*reading{last} // what is older has been overtaken
			r.mu.Unlock()
			return nil
		}
		trace := r.lastUpdates()
		r.mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("the source did not reach revision %d of era %d; it stands at %d of era %d\n%s",
				revision, newest.number, last.revision, last.era.number, trace)
		}
	}
}

// Failed is closed with the first failure.
func (r *Recorder) Failed() <-chan struct{} { return r.failed }

// Err is the first failure: which Update, and what differs.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// CountSets tells how many SETs there were.
func (r *Recorder) CountSets() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sets
}

// Sum says how much was compared.
func (r *Recorder) Sum() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d updates compared (%d of them SETs)", r.updates, r.sets)
}

// Same says how a given state differs from the sum of the Updates, nil if it does not.
func (r *Recorder) Same(services map[registry.Name]*registry.Service, endpoints map[registry.Name]*registry.Endpoints) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	other := holding{services, endpoints}
	var differences []string
	for _, o := range slices.Compact(slices.SortedFunc(slices.Values(append(r.held.objects(), other.objects()...)), object.compare)) {
		if !r.held.services[o.name].Equal(services[o.name]) && o.kind == registry.KindService ||
			!r.held.endpoints[o.name].Equal(endpoints[o.name]) && o.kind == registry.KindEndpoints {
			differences = append(differences, fmt.Sprintf("%v: %s; the Updates say %s", o, other.describe(o), r.held.describe(o)))
		}
	}
	if len(differences) > 0 {
		return errors.New(strings.Join(differences, "\n    "))
	}
	return nil
}

func (r *Recorder) lastUpdates() string {
	return "the last updates:\n  " + strings.Join(r.trace, "\n  ")
}
