package apisource

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"kubeproxy/internal/apiserver"
	"kubeproxy/registry"
)

var (
	modelSteps = flag.Int("model.steps", 400, "writes that the model test makes to each server")
	modelSeed  = flag.Uint64("model.seed", 0, "seed of the model test's choices; 0 takes a new one")
)

// A model is a writer, a server that breaks, and what each object has been, in the order of time. The server may lose the registry,
// too: then each object is gone from then on.
type model struct {
	*follower
	random *rand.Rand
	writes int
	lagged bool                // since things were mended last
	trail  []string            // what was done to the server, for a failure
	was    map[string][]string // by "service web": each value that the object had; empty for none
	at     map[string]int      // how far in was the source has come
	bad    map[string]bool     // whose newest value no proxy can use: what was good before may have passed unseen
}

// The promise of this package: whatever is written, and whatever happens to the server and to the way there, at any time each
// object is in force as it really was, none goes back to what it was before, and once nothing is written any more all of them are
// as the server has them.
func TestEachObjectIsAsItWasAndNeverGoesBack(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("this run again, as far as scheduling allows: -model.seed=%d -model.steps=%d", seed, *modelSteps)
	follow(t, func(f *follower) {
		m := &model{follower: f, random: rand.New(rand.NewPCG(seed, 0)), was: make(map[string][]string), at: make(map[string]int), bad: make(map[string]bool)}
		f.each = m.check
		f.server.PageSize = 2
		f.begin(func(c *Config) { c.SyncPeriod = 2 * time.Second })
		for range *modelSteps {
			m.step()
		}
		m.settle()
		st := f.source.Status()
		f.t.Logf("%d updates, %d sessions, %d resyncs, %d divergences, %d setbacks", len(f.updates), st.Sessions, st.Resyncs, st.Divergences, st.Setbacks)
	})
}

func (m *model) step() {
	if m.random.IntN(10) == 0 {
		m.fault()
	}
	if m.random.IntN(8) == 0 {
		m.server.Untold(m.write)
	} else {
		m.write()
	}
	switch m.random.IntN(20) {
	case 0:
		m.settle()
	case 1, 2, 3:
		time.Sleep(m.upTo(10 * time.Second))
	case 4, 5, 6, 7, 8:
		time.Sleep(m.upTo(100 * time.Millisecond))
	}
}

// write writes one of few objects, so that each has a life with many turns.
func (m *model) write() {
	m.writes++
	name := fmt.Sprint("s-", m.random.IntN(6))
	namespace := "default"
	if m.server.Dialect >= apiserver.V1 && m.random.IntN(2) == 0 { // Endpoints of older servers may hide theirs
		namespace = "team"
	}
	object := strings.TrimPrefix(namespace+"/", "default/") + name
	port := 1000 + m.writes
	addr := fmt.Sprintf("10.1.%d.%d:80", m.writes/250, m.writes%250+1)
	m.mu.Lock() // before it is written, for it may be reported before we come back
	defer m.mu.Unlock()
	note := func(key, value string) {
		m.was[key] = append(m.was[key], value)
		delete(m.bad, key)
	}
	switch m.random.IntN(9) {
	case 0, 1, 2:
		note("service "+object, fmt.Sprint(port))
		m.server.PutService(namespace, name, port)
	case 3, 4, 5:
		note("endpoints "+object, addr)
		m.server.PutEndpoints(namespace, name, addr)
	case 6:
		note("service "+object, "")
		m.server.DeleteService(namespace, name)
	case 7:
		note("endpoints "+object, "")
		m.server.DeleteEndpoints(namespace, name)
	case 8:
		m.bad["service "+object] = true
		m.server.PutService(namespace, name, 99999)
	}
}

func (m *model) fault() {
	fault := m.random.IntN(14)
	m.trail = append(m.trail, fmt.Sprintf("fault %d after %d writes @%d", fault, m.writes, m.server.Version()))
	switch fault {
	case 0:
		m.network.Break()
	case 1:
		m.network.Refuse()
		time.Sleep(m.upTo(time.Minute))
		m.network.Open()
	case 2:
		m.server.Cut()
	case 3:
		m.server.EndWatches("")
	case 4:
		m.server.Compact()
	case 5:
		m.wipe()
	case 6:
		m.server.Undecodable()
	case 7:
		m.server.Mend()
	case 8:
		m.lag()
	case 9:
		m.server.Mute()
	case 10:
		m.slow()
	case 11:
		m.server.Expire()
	case 12:
		m.hang()
	case 13:
		verb := []string{"list", "watch"}[m.random.IntN(2)]
		m.server.Forbid(verb, "services")
		m.server.EndWatches("")
		time.Sleep(m.upTo(time.Minute))
		m.server.Grant(verb, "services")
	}
	if m.random.IntN(2) == 0 {
		m.source.Resync()
	}
}

// hang has the server say nothing for a minute, on connections that stand.
func (m *model) hang() {
	m.server.Break(func(e exchange) bool { e.Hang(); return true })
	m.server.Mute()
	time.Sleep(time.Minute)
	m.server.Break(nil)
	m.lagged = false
}

func (m *model) wipe() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.was {
		m.was[key] = append(m.was[key], "")
	}
	clear(m.bad)
	m.server.Wipe()
}

func (m *model) mend() {
	m.server.Mend()
	m.server.Break(nil)
	m.lagged = false
}

// lag has the next two lists come from a server that lags behind: two, for a third one in a row is believed.
func (m *model) lag() {
	if m.lagged {
		return
	}
	m.lagged = true
	old, lists := m.server.Version(), 0
	m.server.Break(func(e exchange) bool {
		if e.Resource != "services" || e.Watch || lists == 2 {
			return false
		}
		lists++
		m.server.ListAt(e, min(old, m.server.Version()))
		return true
	})
}

// slow has lists take some seconds, until things are mended: what they show is what was when they were asked for.
func (m *model) slow() {
	if m.lagged {
		return
	}
	takes := m.upTo(5 * time.Second)
	m.server.Break(func(e exchange) bool {
		if e.Resource == "" || e.Watch {
			return false
		}
		at := m.server.Version()
		time.Sleep(takes)
		if m.server.Version() < at { // it was wiped
			at = m.server.Version()
		}
		m.server.ListAt(e, at)
		return true
	})
}

// check compares an update with what was. The caller holds the lock.
func (m *model) check(u registry.Update) {
	reported := make(map[string]bool)
	for _, c := range u.Services {
		value := ""
		if c.Value != nil {
			value = ports(c.Value)
		}
		m.advance("service "+c.Name.String(), value)
		reported["service "+c.Name.String()] = true
	}
	for _, c := range u.Endpoints {
		value := ""
		if c.Value != nil {
			value = addrs(c.Value)
		}
		m.advance("endpoints "+c.Name.String(), value)
		reported["endpoints "+c.Name.String()] = true
	}
	for key := range m.was {
		if u.Set && !reported[key] {
			m.advance(key, "")
		}
	}
}

// advance goes on to the next time at which an object had a value.
func (m *model) advance(key, value string) {
	was, at := m.was[key], m.at[key]
	if value == "" && at == 0 {
		return // it was not there at the beginning
	}
	if at > 0 && was[at-1] == value {
		return
	}
	next := slices.Index(was[at:], value)
	if next < 0 {
		m.t.Errorf("%s is %q, which it never was after %q (then %q); %v", key, value, was[:at], was[at:], m.trail[max(len(m.trail)-8, 0):])
		return
	}
	m.at[key] = at + next + 1
}

// settle waits until everything has been listed again, and compares.
func (m *model) settle() {
	m.t.Helper()
	m.mend()
	if m.server.Dialect >= apiserver.V1 {
		m.after(2*time.Minute + maxSilence) // after a list, and the end of a watch that was muted
	} else {
		m.after(time.Minute)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	want := maps.Collect(func(yield func(string, string) bool) {
		for key, was := range m.was {
			value := was[len(was)-1]
			if m.bad[key] {
				value = m.state[key]
			}
			if value != "" && !yield(key, value) {
				return
			}
		}
	})
	if !maps.Equal(m.state, want) {
		m.t.Errorf("after %d writes there is in force %v; want %v", m.writes, m.state, want)
	}
}

func (m *model) upTo(d time.Duration) time.Duration { return time.Duration(m.random.Int64N(int64(d))) }
