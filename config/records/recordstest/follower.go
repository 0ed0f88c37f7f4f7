package recordstest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kubeproxy/config"
	"kubeproxy/registry"
)

// longEnough is how long a test waits for what has to come.
const longEnough = 30 * time.Second

// A Follower stands where the Mux stands, and adds up what one source sends. [Follow] makes one for a source that runs;
// [NewFollower] makes one that is given each Update.
type Follower struct {
	Updates chan registry.Update
	Lives   bool // Show names the life that each service is in

	source   config.Source
	mu       sync.Mutex // guards the fields below
	services map[registry.Name]*registry.Service
	sets     int
	last     registry.Update
}

// NewFollower returns a follower that has seen nothing. The source is asked for its status.
func NewFollower(s config.Source) *Follower {
	return &Follower{Updates: make(chan registry.Update), source: s, services: make(map[registry.Name]*registry.Service)}
}

// Follow runs a source until the test ends. Run must return nil then.
func Follow(t testing.TB, s config.Source) *Follower {
	t.Helper()
	f := NewFollower(s)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx, f.Updates) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run returns %v", err)
		}
	})
	return f
}

// Add adds one Update.
func (f *Follower) Add(u registry.Update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = u
	if u.Set {
		f.sets++
		clear(f.services)
	}
	for _, c := range u.Services {
		if c.Value == nil {
			delete(f.services, c.Name)
		} else {
			f.services[c.Name] = c.Value
		}
	}
}

// Show gives the services with their first ports: "a:80", or "a:80@1" with the life that each is in.
func (f *Follower) Show() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, name := range slices.SortedFunc(maps.Keys(f.services), registry.Name.Compare) {
		s := f.services[name]
		text := fmt.Sprintf("%s:%d", name, s.Ports[0].Number)
		if f.Lives {
			text += fmt.Sprintf("@%d", s.Created)
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// Sets tells how many SETs there were.
func (f *Follower) Sets() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sets
}

// Last gives the last Update.
func (f *Follower) Last() registry.Update {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// Await takes updates until they add up to what Show is to say.
func (f *Follower) Await(t testing.TB, want string) {
	t.Helper()
	f.Until(t, want, func() bool { return f.Sets() > 0 && f.Show() == want })
}

// Until takes updates until something is so.
func (f *Follower) Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	timer := time.NewTimer(longEnough)
	defer timer.Stop()
	for !is() {
		select {
		case u := <-f.Updates:
			f.Add(u)
		case <-timer.C:
			t.Fatalf("there is %q; want %q\n%+v", f.Show(), what, f.source.Status())
		}
	}
}

// AwaitStatus takes updates until the status is as wanted.
func (f *Follower) AwaitStatus(t testing.TB, what string, is func(config.Status) bool) config.Status {
	t.Helper()
	for deadline := time.Now().Add(longEnough); ; {
		st := f.source.Status()
		if is(st) {
			return st
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: the status is %+v", what, st)
		}
		select {
		case u := <-f.Updates:
			f.Add(u)
		case <-time.After(time.Millisecond):
		}
	}
}
