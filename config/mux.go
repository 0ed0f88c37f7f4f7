package config

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// A Mux is where sources meet: it has its broadcaster merge what they send, and open the queues when
// all of them have sent a SET, or when one of them has been silent for too long.
type Mux struct {
	broadcaster *Broadcaster

	mu      sync.Mutex // guards the fields below
	running bool
	sources []*source // in the order of precedence; fixed once running
	silent  int       // sources that have yet to send their first SET
	open    bool      // the queues are

	fallback func() (registry.Update, bool)                   // nil: none
	served   func(ctx context.Context, sources []string) bool // another process serves what these hold; nil: none does
	stale    bool                                             // what the fallback returned is in force

	spoken chan struct{} // capacity 1: a source has sent a SET
}

// A source is one of the mux's inputs.
type source struct {
	name     string
	updates  chan registry.Update
	complete bool // its first SET is here, or it will never send one; guarded by the mux's mu
}

// NewMux returns a mux without sources. Nothing else may feed b.
func NewMux(b *Broadcaster) *Mux { return &Mux{broadcaster: b, spoken: make(chan struct{}, 1)} }

// Channel returns the channel on which a source sends its updates. The order of calls is the
// precedence, the first one highest; the same name gives the same channel. All calls come before
// [Mux.Run], since that has to know whom to wait for: a later one panics, as does an empty name.
//
// The source begins with a SET, and the handlers get nothing until each source has sent one. A source that is silent holds
// up the others for 3 s, from the first SET of another one; what it says later comes as a change. Changes
// that come before it are kept; but as the SET lists all there is, it decides which of them remain.
// A SET cannot contain a REMOVE: a change in it that has no value counts as not being there.
//
// The channel has no buffer. A send waits only while updates are being merged, never for a handler.
// Once the context of Run has ended the Mux receives nothing more, so a source must give up then too:
//
//	select {
//	case updates <- update:
//	case <-ctx.Done():
//	}
//
// A source may close its channel. It then has nothing more to say, and what it said stays in force.
func (m *Mux) Channel(name string) chan<- registry.Update {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name == "" {
		panic("config: a source must have a name")
	}
	for _, s := range m.sources {
		if s.name == name {
			return s.updates
		}
	}
	if m.running {
		panic("config: source " + name + " was added after Run began")
	}
	s := &source{name: name, updates: make(chan registry.Update)}
	m.sources = append(m.sources, s)
	m.broadcaster.addSource(name)
	m.silent++
	return s.updates
}

// Fallback sets what is served while no source can be read: if none has sent a SET within 3 s of [Mux.Run], read is called, and
// the SET that it returns is in force as if it came from a source below all others. It is void, as one step, when each source has sent
// a SET, or when one of them has been silent for too long after another one. If read returns false, there is nothing to serve. The
// services keep the ranks that they have. Fallback is called before Run, once at most.
func (m *Mux) Fallback(read func() (set registry.Update, ok bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fallback = read
}

// Served says who knows whether another process serves what one of some sources holds, and goes on until this one takes over. While it does,
// those sources are not passed over, though they are silent, and nothing of [Mux.Fallback] is served. It is asked each second, once they would
// be. Served is called before Run, once at most.
func (m *Mux) Served(served func(ctx context.Context, sources []string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.served = served
}

// Stale reports whether what the fallback returned is in force. Any goroutine may ask.
func (m *Mux) Stale() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stale
}

// Run merges what the sources send and has the broadcaster's handlers told, until ctx ends. Then it
// begins no further batch, waits until every handler of the batches under way has returned, and
// returns nil: being told to stop is no error. Only a second call gets one.
func (m *Mux) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.running {
		m.mu.Unlock()
		return errors.New("the mux has been run before")
	}
	m.running = true
	if m.fallback != nil {
		m.broadcaster.addFallback()
	}
	if len(m.sources) == 0 { // a Mux without sources waits for none
		m.broadcaster.end(ending{silence: true})
	}
	m.openLocked()
	m.mu.Unlock()

	var listeners sync.WaitGroup
	for i, s := range m.sources {
		listeners.Go(func() { m.listen(ctx, i, s) })
	}
	if len(m.sources) > 1 {
		listeners.Go(func() { m.waitForSilent(ctx) })
	}
	if m.fallback != nil {
		listeners.Go(func() { m.fallBack(ctx) })
	}
	m.broadcaster.run(ctx)
	listeners.Wait()
	return nil
}

// listen merges the updates of one source until ctx ends or the source closes its channel. D26: v0.4
// took the zero value from a closed channel again and again, as fast as it could.
func (m *Mux) listen(ctx context.Context, precedence int, s *source) {
	for {
		select {
		case u, ok := <-s.updates:
			if !ok {
				m.close(s)
				return
			}
			m.merge(precedence, s, u)
		case <-ctx.Done():
			return
		}
	}
}

// merge applies one update.
func (m *Mux) merge(precedence int, s *source, u registry.Update) {
	if v := glog.V(4); v {
		operation := "changes"
		if u.Set {
			operation = "SET"
		}
		v.Infof("%s: %s @%d: %d services, %d endpoints", s.name, operation, u.Revision, len(u.Services), len(u.Endpoints))
	}
	if !u.Set {
		m.broadcaster.merge(precedence, u, ending{})
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broadcaster.merge(precedence, u, m.completeLocked(s))
	m.openLocked()
	select {
	case m.spoken <- struct{}{}:
	default:
	}
}

// maxSilence is how long a source that says nothing holds up the first state when another one has spoken.
const maxSilence = 3 * time.Second

// waitForSilent opens the queues when sources stay silent for too long after another one has spoken: services of a registry that
// can be read are not kept from their clients by another registry that cannot. Without any source there is nothing to serve.
func (m *Mux) waitForSilent(ctx context.Context) {
	select {
	case <-m.spoken:
	case <-ctx.Done():
		return
	}
	timer := time.NewTimer(maxSilence)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	if !m.awaitUnserved(ctx, func() bool { return m.silent == 0 }) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.silent == 0 {
		return
	}
	for _, name := range m.silentLocked() {
		glog.Warningf("nothing has been read from %s for %v; what the other sources hold is served without it", name, maxSilence)
	}
	if m.stale {
		m.stale = false
		m.broadcaster.end(ending{fallback: true})
	}
	m.openNowLocked()
}

// fallBack has the fallback served when no source has sent a SET in time.
func (m *Mux) fallBack(ctx context.Context) {
	timer := time.NewTimer(maxSilence)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	if !m.awaitUnserved(ctx, func() bool { return m.silent < len(m.sources) }) {
		return
	}
	set, ok := m.fallback() // it may take its time
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.silent < len(m.sources) {
		return // a source has spoken meanwhile
	}
	m.stale = true
	m.broadcaster.merge(len(m.sources), set, ending{})
	m.openNowLocked()
}

// Silent returns the names of the sources that have sent no SET. Any goroutine may ask.
func (m *Mux) Silent() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.silentLocked()
}

// silentLocked returns the names of the sources that have sent no SET.
func (m *Mux) silentLocked() (names []string) {
	for _, s := range m.sources {
		if !s.complete {
			names = append(names, s.name)
		}
	}
	return names
}

// awaitUnserved waits until no other process serves what the sources hold, and reports whether that is so before enough has been read, which is
// asked under mu, and before ctx ends.
func (m *Mux) awaitUnserved(ctx context.Context, enough func() bool) bool {
	for told := false; ; told = true {
		m.mu.Lock()
		read := enough()
		silent := m.silentLocked()
		m.mu.Unlock()
		switch {
		case read || ctx.Err() != nil:
			return false
		case m.served == nil || !m.served(ctx, silent):
			return true
		case !told:
			glog.Warningf("nothing has been read from %s for %v: the process that serves goes on until it has been read, or until that process ends",
				strings.Join(silent, " and "), maxSilence)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// close notes that a source will say nothing more. If it never sent a SET, then what it did say is
// all that it ever will: to wait for more would be to wait for ever.
func (m *Mux) close(s *source) {
	glog.Warningf("source %s has closed its channel; what it said stays in force", s.name)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broadcaster.end(m.completeLocked(s))
	m.openLocked()
}

// completeLocked notes that the Mux waits for a source no longer, and returns what ends by that.
func (m *Mux) completeLocked(s *source) (e ending) {
	if s.complete {
		return e
	}
	s.complete = true
	if m.silent--; m.silent == 0 {
		e = ending{fallback: m.stale, silence: true}
		m.stale = false
	}
	return e
}

// openLocked opens the queues if no source is waited for. What the last one said in its first SET has been merged by then, so that the first batch
// has all of it.
func (m *Mux) openLocked() {
	if m.silent == 0 {
		m.openNowLocked()
	}
}

// openNowLocked has what the sources have said served. It may be called again.
func (m *Mux) openNowLocked() {
	if !m.open {
		m.open = true
		m.broadcaster.open()
	}
}
