package config

import (
	"iter"

	"kubeproxy/registry"
)

// A Step is what one update of one source has made of the merged state.
type Step struct {
	Source   string
	Revision int64 // of the source
	// Corrected reports that a full list found the changes, after the source had listed everything before: its watch has missed them, or
	// they were made while it was away.
	Corrected bool
	outcome   outcome
}

// An Applied change is what a step has made of one object: of a service, or of endpoints. Nil stands for no such object.
type Applied struct {
	Name                            registry.Name
	IsService                       bool
	ServiceBefore, ServiceAfter     *registry.Service
	EndpointsBefore, EndpointsAfter *registry.Endpoints
}

// Len counts the changes.
func (s *Step) Len() int { return len(s.outcome.services) + len(s.outcome.endpoints) }

// Changes yields the changes, those of services first.
func (s *Step) Changes() iter.Seq[Applied] {
	return func(yield func(Applied) bool) {
		for _, c := range s.outcome.services {
			if !yield(Applied{Name: c.name, IsService: true, ServiceBefore: c.before, ServiceAfter: c.after}) {
				return
			}
		}
		for _, c := range s.outcome.endpoints {
			if !yield(Applied{Name: c.name, EndpointsBefore: c.before, EndpointsAfter: c.after}) {
				return
			}
		}
	}
}

// Observe has f called with each step after the first state, in order. It is called before the sources run, once at most. All sources wait
// for f, which must not wait itself.
func (b *Broadcaster) Observe(f func(Step)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observe = f
}
