package etcdsource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/registry"
)

func TestWhatIsWrittenTakesEffect(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("mysql"), port(3306), ends("mysql"), addrs("10.0.0.1:1"))
	f := follow(t, quick(etcd.URL()))
	f.await(t, "mysql:3306 | mysql=10.0.0.1:1")

	// D10: v0.4 acted on "set" alone, and a real master never used it for services.
	put(t, c, spec("redis"), port(6379))
	f.await(t, "mysql:3306 redis:6379 | mysql=10.0.0.1:1")
	if _, err := c.Txn(t.Context()).If(clientv3.Compare(clientv3.Value(spec("redis")), "=", port(6379))).
		Then(clientv3.OpPut(spec("redis"), port(6380))).Commit(); err != nil {
		t.Fatal(err)
	}
	f.await(t, "mysql:3306 redis:6380 | mysql=10.0.0.1:1")
	put(t, c, ends("mysql"), addrs("10.0.0.2:2", "10.0.0.1:1"))
	f.await(t, "mysql:3306 redis:6380 | mysql=10.0.0.2:2,10.0.0.1:1")

	// D11: to delete endpoints deletes endpoints, and to delete a service the service.
	del(t, c, ends("mysql"))
	f.await(t, "mysql:3306 redis:6380 | ")
	put(t, c, ends("redis"), addrs("10.0.0.3:3"))
	del(t, c, spec("redis"))
	f.await(t, "mysql:3306 | redis=10.0.0.3:3")

	// A lease that runs out deletes, too.
	lease, err := c.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), spec("brief"), port(1), clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	f.await(t, "brief:1 mysql:3306 | redis=10.0.0.3:3")
	if _, err := c.Revoke(t.Context(), lease.ID); err != nil {
		t.Fatal(err)
	}
	f.await(t, "mysql:3306 | redis=10.0.0.3:3")
}

func TestAnEmptyRegistryIsAState(t *testing.T) { // D9
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	f := follow(t, quick(etcd.URL()))
	f.await(t, " | ")
	if u := f.last(); !u.Set || u.Revision != 1 {
		t.Errorf("first update %+v; want a SET at revision 1", u)
	}
	put(t, c, spec("last"), port(1))
	f.await(t, "last:1 | ")
	del(t, c, spec("last"))
	f.await(t, " | ")

	// The last one deleted without a watch: the list must remove it.
	put(t, c, spec("last"), port(1))
	f.await(t, "last:1 | ")
	sessions := f.source.Status().Sessions
	link := etcdtest.NewLink(t, etcd.Addr())
	g := follow(t, quick(link.Addr()))
	g.await(t, "last:1 | ")
	link.Down()
	del(t, c, spec("last"))
	link.Cut()
	link.Up()
	g.await(t, " | ")
	f.await(t, " | ")
	if now := f.source.Status().Sessions; now != sessions {
		t.Errorf("the undisturbed source had %d sessions, now %d", sessions, now)
	}
}

func TestATransactionArrivesWhole(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("old"), port(1))
	f := follow(t, quick(etcd.URL()))
	f.await(t, "old:1 | ")
	resp, err := c.Txn(t.Context()).Then(
		clientv3.OpPut(ends("new"), addrs("10.0.0.1:1")), clientv3.OpDelete(spec("old")), clientv3.OpPut(spec("new"), port(1)),
	).Commit()
	if err != nil {
		t.Fatal(err)
	}
	f.await(t, "new:1 | new=10.0.0.1:1")
	u := f.last()
	if u.Set || u.Revision != resp.Header.Revision || len(u.Services) != 2 || len(u.Endpoints) != 1 || u.Received.IsZero() {
		t.Errorf("got %+v; want one change at revision %d with everything in it", u, resp.Header.Revision)
	}
}

// etcd cuts a response that is larger than its request limit into fragments if it is asked to. Deletions by range make such
// responses: one revision, any number of events.
func TestAHugeTransactionArrivesWhole(t *testing.T) {
	for _, inFragments := range []bool{false, true} {
		t.Run(fmt.Sprintf("in fragments: %v", inFragments), func(t *testing.T) {
			etcd := etcdtest.StartProcess(t, "--max-request-bytes=100000") // and half a MiB of overhead
			c := etcd.Client(t)
			const n = 2500
			long := strings.Repeat("x", 230)
			var ops []clientv3.Op
			for i := range n {
				ops = append(ops, clientv3.OpPut(spec(fmt.Sprintf("%s/s%d", long, i)), port(1)))
				if len(ops) == 100 || i == n-1 {
					if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
						t.Fatal(err)
					}
					ops = nil
				}
			}
			m := newMiddleman(t, c)
			fragments := 0
			m.hook(func(m *middleman) {
				m.onEvents = func(resp *etcdserverpb.WatchResponse) bool {
					if resp.Fragment {
						fragments++
					}
					// The header may run ahead of what was delivered: revisions come from the events.
					resp.Header.Revision += 10 * int64(min(1, len(resp.Events)))
					return true
				}
			})
			cfg := quick(m.url)
			cfg.PageSize = 1000
			cfg.ProbePeriod, cfg.RequestTimeout = patience, patience // a busy machine must not look like a dead watch: a list would tell of the removals
			source, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			source.fragments = inFragments
			f := followSource(t, source)
			f.awaitRevision(t, 1)
			if first := f.past()[0]; len(first.Services) != n {
				t.Fatalf("%d services in the first list; want %d", len(first.Services), n)
			}
			if _, err := c.Delete(t.Context(), registry.SpecsPrefix, clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
			f.await(t, " | ") // before the next write: a watch that lags is told of several revisions at once
			revision := put(t, c, spec("after"), port(1))
			f.await(t, "after:1 | ")
			past := f.past()
			if u := past[len(past)-2]; len(u.Services) != n || u.Set || u.Revision != revision-1 {
				t.Errorf("%d removals in one update at revision %d; want all %d at %d", len(u.Services), u.Revision, n, revision-1)
			}
			m.hook(func(*middleman) {
				if (fragments > 0) != inFragments {
					t.Errorf("%d messages were fragments", fragments)
				}
			})
		})
	}
}

// etcd cuts slowly, so a watch asks for fragments only after a response that was larger than a message may be, and only once.
func TestOnlyAfterAResponseThatIsTooLargeIsTheNextWatchInFragments(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1))
	m := newMiddleman(t, c)
	var asked []bool // of each watch: for fragments
	m.hook(func(m *middleman) {
		m.onAsk = func(req *etcdserverpb.WatchRequest) bool {
			if create := req.GetCreateRequest(); create != nil && create.RangeEnd != nil { // no challenge
				asked = append(asked, create.Fragment)
			}
			return true
		}
		m.onEvents = func(resp *etcdserverpb.WatchResponse) bool {
			if len(resp.Events) > 0 && !asked[len(asked)-1] {
				resp.Events[0].Kv.Value = make([]byte, maxMessage)
			}
			return true
		}
	})
	cfg := quick(m.url)
	cfg.ProbePeriod, cfg.RequestTimeout = patience, patience // a busy machine must not look like a dead watch
	f := follow(t, cfg)
	f.await(t, "a:1 | ")
	put(t, c, spec("a"), port(2))
	f.await(t, "a:2 | ")
	put(t, c, spec("a"), port(3))
	f.await(t, "a:3 | ")
	if st := f.source.Status(); st.Sessions != 2 || ended(st)[Stale] != 1 {
		t.Errorf("%d sessions, of which %d were behind; want 2 and 1", st.Sessions, ended(st)[Stale])
	}
	m.cancel("for the test", 0)
	f.awaitStatus(t, "a third session", func(st config.Status) bool { return st.Sessions == 3 })
	m.hook(func(*middleman) {
		if want := []bool{false, true, false}; !slices.Equal(asked, want) {
			t.Errorf("fragments were asked for by %v; want %v", asked, want)
		}
	})
}

func TestABadValueHurtsOnlyItself(t *testing.T) { // D17, D18
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("good"), port(1), spec("zz"), "{", ends("good"), `{"endpoints":"no list"}`)
	log := logSince(t)
	f := follow(t, quick(etcd.URL()))
	f.await(t, "good:1 | ") // bad at the start blocks nothing, not even as the last in key order
	put(t, c, spec("good"), "no JSON\nW1121 forged line")
	f.awaitRevision(t, put(t, c, spec("other"), port(2)))
	f.await(t, "good:1 other:2 | ")
	if n := f.source.Status().Rejected; n != 3 {
		t.Errorf("%d rejected keys; want 3", n)
	}
	f.resync(t)
	f.await(t, "good:1 other:2 | ") // v0.4 kept the old one on an event, and dropped it at the next list
	put(t, c, spec("good"), port(3))
	f.await(t, "good:3 other:2 | ")

	// Each value is complained of once: not by the resync, not by a new session, not when it comes back.
	for i, value := range []string{"no JSON\nW1121 forged line", "another"} { // one after the other: of values that come together only the newest counts
		put(t, c, spec("good"), value)
		f.awaitRevision(t, put(t, c, spec("other"), port(4+i)))
	}
	put(t, c, spec("good"), port(4))
	f.await(t, "good:4 other:5 | ")
	etcd.Kill()
	etcd.Start(t)
	f.awaitStatus(t, "a second session", func(st config.Status) bool { return st.Sessions == 2 })
	text := log()
	for key, want := range map[string]int{`specs/zz" at`: 1, `specs/good" at`: 2, `endpoints/good" at`: 1, `specs/good" can be used again`: 2, `zz" can`: 0, "\nW1121 forged": 0} {
		if n := strings.Count(text, key); n != want {
			t.Errorf("%d log lines with %s; want %d:\n%s", n, key, want, text)
		}
	}
}

func TestADeletionEndsTheLastGoodVersion(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1))
	f := follow(t, quick(etcd.URL()))
	f.await(t, "a:1 | ")
	if _, err := c.Txn(t.Context()).Then(clientv3.OpDelete(spec("a"))).Commit(); err != nil {
		t.Fatal(err)
	}
	put(t, c, spec("a"), "{")
	f.awaitRevision(t, put(t, c, spec("b"), port(2)))
	f.await(t, "b:2 | ")

	// The same without a watch: the list shows another create revision.
	put(t, c, spec("a"), port(3))
	f.await(t, "a:3 b:2 | ")
	f.stop()
	link := etcdtest.NewLink(t, etcd.Addr())
	g := follow(t, quick(link.Addr()))
	g.await(t, "a:3 b:2 | ")
	link.Down()
	del(t, c, spec("a"))
	put(t, c, spec("a"), "{", spec("b"), "{")
	link.Cut()
	link.Up()
	g.await(t, "b:2 | ")
}

func TestTheNamespacedKeyWinsOverTheFlatOne(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	f := follow(t, quick(etcd.URL()))
	flat := put(t, c, spec("a"), port(1))
	f.await(t, "a:1 | ")
	namespaced := put(t, c, spec("default/a"), port(2))
	f.await(t, "a:2 | ")
	if got := f.last().Services[0].Value.Created; got != namespaced {
		t.Errorf("created %d; want that of the namespaced key, %d", got, namespaced)
	}
	put(t, c, spec("a"), port(3)) // in the shadow
	put(t, c, spec("default/a"), "{")
	f.awaitRevision(t, put(t, c, spec("prod/a"), port(4)))
	f.await(t, "a:2 prod/a:4 | ") // its last good version holds the place
	del(t, c, spec("default/a"))
	f.await(t, "a:3 prod/a:4 | ")
	if got := f.last().Services[0].Value.Created; got != flat {
		t.Errorf("created %d; want that of the flat key, %d", got, flat)
	}
	put(t, c, spec("default/a"), "{") // no good version in this life: no shadow
	put(t, c, spec("a"), port(5))
	f.awaitRevision(t, put(t, c, spec("prod/a"), port(5)))
	f.await(t, "a:5 prod/a:5 | ")
	put(t, c, spec("default/a"), port(6))
	f.await(t, "a:6 prod/a:5 | ")
	del(t, c, spec("a"))
	f.awaitRevision(t, put(t, c, spec("prod/a"), port(7)))
	f.await(t, "a:6 prod/a:7 | ")
	del(t, c, spec("default/a"))
	f.await(t, "prod/a:7 | ")
}

func TestStrangeKeysAreLeftAlone(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	log := logSince(t)
	put(t, c,
		registry.Prefix+"other/x", port(1), "/registry/services-x", port(2), spec("a/b/c"), port(3), spec("ns/"), port(4),
		"registry/services/specs/y", port(5), spec("z"), port(6))
	f := follow(t, quick(etcd.URL()))
	f.await(t, "z:6 | ")
	put(t, c, spec("a/b/c"), port(7), registry.Prefix+"other/x", port(8), spec("z"), port(9))
	f.await(t, "z:9 | ")
	del(t, c, registry.Prefix+"other/x", spec("a/b/c"))
	f.resync(t)
	f.await(t, "z:9 | ")
	text := log()
	for key, want := range map[string]int{`specs/a/b/c"`: 1, `specs/ns/"`: 1, "other/x": 0} {
		if n := strings.Count(text, key); n != want {
			t.Errorf("%d log lines with %s; want %d:\n%s", n, key, want, text)
		}
	}
	if n := f.source.Status().Rejected; n != 1 {
		t.Errorf("%d rejected keys; want the one that is left, ns/", n)
	}
}

func TestNothingIsSentBeforeTheRegistryIsKnown(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	put(t, etcd.Client(t), spec("a"), port(1))
	etcd.Stop()
	f := follow(t, quick(etcd.URL()))
	st := f.awaitStatus(t, "a reason", func(st config.Status) bool { return st.Reason != "" })
	if st.Ready || st.Connected || st.Since.IsZero() || !strings.Contains(st.Reason, "connection refused") {
		t.Errorf("without etcd: %+v; want neither ready nor connected, and why not", st)
	}
	if got := f.text(); got != "nothing yet" {
		t.Errorf("without etcd it sent %q", got)
	}
	etcd.Start(t)
	f.await(t, "a:1 | ")
	st = f.awaitStatus(t, "ready", func(st config.Status) bool { return st.Ready })
	if !st.Connected || st.Revision != 2 || st.Services != 1 || st.Sessions != 1 || st.Reason != "" || st.Cluster == "" {
		t.Errorf("with etcd: %+v", st)
	}
	f.stop()
	if st := f.source.Status(); st.Connected || !st.Ready {
		t.Errorf("after its end: %+v; want not connected", st)
	}
}
