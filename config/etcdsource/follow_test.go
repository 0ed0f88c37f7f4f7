package etcdsource

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource/events"
	"kubeproxy/config/records"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry"
)

// patience is how long a test waits for what must come. Nothing is measured by it.
const patience = 30 * time.Second

// A follower stands where the Mux stands and keeps what the Updates add up to.
type follower struct {
	source *Source
	stop   func() // ends Run and waits for it

	mu        sync.Mutex // guards the fields below
	services  map[string]*registry.Service
	endpoints map[string]*registry.Endpoints
	updates   []registry.Update
	moved     chan struct{} // closed and replaced with every Update
}

// quick is a configuration for tests: the same as the program's, but for its periods.
func quick(urls ...string) Config {
	return Config{
		Endpoints:      urls,
		SyncPeriod:     time.Hour, // resyncs come when asked for
		RequestTimeout: 5 * time.Second,
		ProbePeriod:    200 * time.Millisecond,
		PageSize:       3,
	}
}

// follow runs a source until the test ends.
func follow(t testing.TB, cfg Config) *follower {
	t.Helper()
	source, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return followSource(t, source)
}

func followSource(t testing.TB, source *Source) *follower {
	t.Helper()
	f := &follower{source: source, moved: make(chan struct{})}
	out := make(chan registry.Update)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(out)
		if err := source.Run(ctx, out); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	wg.Go(func() {
		for u := range out {
			f.apply(u)
		}
	})
	f.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(f.stop)
	return f
}

func (f *follower) apply(u registry.Update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if u.Set {
		f.services, f.endpoints = make(map[string]*registry.Service), make(map[string]*registry.Endpoints)
	}
	for _, c := range u.Services {
		if c.Value == nil {
			delete(f.services, c.Name.String())
		} else {
			f.services[c.Name.String()] = c.Value
		}
	}
	for _, c := range u.Endpoints {
		if c.Value == nil {
			delete(f.endpoints, c.Name.String())
		} else {
			f.endpoints[c.Name.String()] = c.Value
		}
	}
	f.updates = append(f.updates, u)
	close(f.moved)
	f.moved = make(chan struct{})
}

// text shows what is known in one line: "mysql:3306 redis:6379 | mysql=10.0.0.1:1".
func (f *follower) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.textLocked()
}

func (f *follower) textLocked() string {
	if len(f.updates) == 0 {
		return "nothing yet"
	}
	var services, endpoints []string
	for _, name := range slices.Sorted(maps.Keys(f.services)) {
		for _, p := range f.services[name].Ports {
			services = append(services, fmt.Sprintf("%s:%d", name, p.Number))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.endpoints)) {
		line := name + "="
		for i, addr := range slices.Collect(f.endpoints[name].Of("").All()) {
			if i > 0 {
				line += ","
			}
			line += addr.String()
		}
		endpoints = append(endpoints, line)
	}
	return strings.Join(services, " ") + " | " + strings.Join(endpoints, " ")
}

// await waits until what is known reads like this.
func (f *follower) await(t testing.TB, want string) {
	t.Helper()
	f.awaitThat(t, want, func() bool { return f.textLocked() == want })
}

// awaitRevision waits for an Update at a revision or a later one.
func (f *follower) awaitRevision(t testing.TB, revision int64) {
	t.Helper()
	f.awaitThat(t, fmt.Sprintf("revision %d", revision), func() bool {
		return len(f.updates) > 0 && f.updates[len(f.updates)-1].Revision >= revision
	})
}

// awaitThat waits for a condition, which is looked at with the lock held after every Update.
func (f *follower) awaitThat(t testing.TB, what string, condition func() bool) {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		f.mu.Lock()
		met, text, moved, revision := condition(), f.textLocked(), f.moved, int64(0)
		if n := len(f.updates); n > 0 {
			revision = f.updates[n-1].Revision
		}
		f.mu.Unlock()
		if met {
			f.awaitStatus(t, "that of the Update", func(st config.Status) bool { return st.Revision >= revision }) // it is noted after that
			return
		}
		select {
		case <-moved:
		case <-timeout.C:
			t.Fatalf("after %v it is still %q; want %s. Status: %+v", patience, text, what, f.source.Status())
		}
	}
}

// awaitStatus waits for the status to be like this.
func (f *follower) awaitStatus(t testing.TB, what string, condition func(config.Status) bool) config.Status {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		st := f.source.Status()
		if condition(st) {
			return st
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v the status is still %+v; want %s", patience, st, what)
		}
	}
}

// resync asks for a full list and waits until it was applied.
func (f *follower) resync(t testing.TB) config.Status {
	t.Helper()
	before := f.source.Status().Resyncs
	f.source.Resync()
	return f.awaitStatus(t, "another resync", func(st config.Status) bool { return st.Resyncs > before })
}

// last returns the newest Update.
func (f *follower) last() registry.Update {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.updates[len(f.updates)-1]
}

// past returns all Updates so far.
func (f *follower) past() []registry.Update {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.updates)
}

// Keys and values, short: most tests speak of few and simple ones.

// The records of the tests.
var (
	spec  = recordstest.Spec
	ends  = recordstest.Ends
	port  = recordstest.Port
	addrs = recordstest.Addrs
)

// logSince gives what is logged from now on, when called.
var logSince = recordstest.LogSince

// kv is a value of the service a: created and modified at these revisions.
func kv(created, modified int64, value string) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(spec("a")), CreateRevision: created, ModRevision: modified, Value: []byte(value)}
}

// listed is an empty list.
func listed(revision int64) listing { return listing{revision: revision} }

// bigList is a registry of n services with endpoints, of the usual size, and the list of it.
func bigList(n int) (list records.List, kvs []*mvccpb.KeyValue) {
	for i, r := range recordstest.Registry(n) {
		revision := int64(i + 2)
		kvs = append(kvs, &mvccpb.KeyValue{Key: []byte(r.Key), Value: []byte(r.Value), CreateRevision: revision, ModRevision: revision})
		list.Add([]records.Version{events.VersionOf(kvs[i])})
	}
	return list, kvs
}

// put writes pairs of key and value, each in its own revision, and returns the last one.
func put(t testing.TB, c *clientv3.Client, pairs ...string) (revision int64) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		resp, err := c.Put(t.Context(), pairs[i], pairs[i+1])
		if err != nil {
			t.Fatal(err)
		}
		revision = resp.Header.Revision
	}
	return revision
}

// del deletes keys, each in its own revision.
func del(t testing.TB, c *clientv3.Client, keys ...string) (revision int64) {
	t.Helper()
	for _, key := range keys {
		resp, err := c.Delete(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		revision = resp.Header.Revision
	}
	return revision
}
