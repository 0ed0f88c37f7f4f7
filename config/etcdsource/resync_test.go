package etcdsource

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource/etcdtest"
)

// Both kinds of resync: at a revision that etcd still has, and where that was compacted away.
var resyncs = []struct {
	name      string
	compacted bool
}{{"pinned", false}, {"compacted", true}}

// compactFirst has etcd compacted away whatever a resync asks for, just before it does.
func compactFirst(t *testing.T, etcd *etcdtest.Process) func(*etcdserverpb.RangeRequest, answerer) (*etcdserverpb.RangeResponse, error) {
	c := etcd.Client(t)
	return func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
		if isList(req) && req.Revision > 0 && string(req.Key) == string(prefixStart) {
			revision := put(t, c, "/elsewhere", "x")
			if _, err := c.Compact(t.Context(), revision); err != nil {
				t.Error(err)
			}
		}
		return etcd(req)
	}
}

func TestAResyncMendsWhatTheWatchHasLost(t *testing.T) {
	for _, kind := range resyncs {
		t.Run(kind.name, func(t *testing.T) {
			etcd := etcdtest.StartProcess(t)
			c := etcd.Client(t)
			put(t, c, spec("a"), port(1), spec("b"), port(1), spec("c"), port(1))
			m := newMiddleman(t, c)
			f := follow(t, quick(m.url))
			f.await(t, "a:1 b:1 c:1 | ")

			// The watch loses three changes, and claims to have told of everything.
			m.hook(func(m *middleman) {
				m.onEvents = func(resp *etcdserverpb.WatchResponse) bool { return len(resp.Events) == 0 }
			})
			put(t, c, spec("a"), port(2), spec("d"), port(2))
			del(t, c, spec("b"))
			lost := time.Now()
			f.awaitStatus(t, "the claim believed", func(st config.Status) bool { return st.Current.After(lost) })
			m.hook(func(m *middleman) {
				m.onEvents = nil
				if kind.compacted {
					m.onRange = compactFirst(t, etcd)
					m.onAsk = func(req *etcdserverpb.WatchRequest) bool { return !isProgress(req) }
				}
			})
			log := logSince(t)
			for f.text() != "a:2 c:1 d:2 | " {
				f.resync(t)
			}
			st := f.source.Status()
			want := uint64(3)
			if kind.compacted {
				want = 2 // a list that is newer than the watch does not tell when a key was deleted
			}
			if st.Divergences != want || st.Sessions != 1 {
				t.Errorf("%+v; want %d divergences, found in the first session", st, want)
			}
			if text := log(); !strings.Contains(text, fmt.Sprintf(`mended %d keys that the watch had not told of: "`, want)) {
				t.Errorf("that was said nowhere:\n%s", text)
			}
			if st := f.resync(t); st.Divergences != want {
				t.Errorf("%+v; want nothing left to mend", st)
			}
		})
	}
}

func TestAResyncDoesNotUndoWhatTheWatchTellsMeanwhile(t *testing.T) { // D22
	for _, kind := range resyncs {
		t.Run(kind.name, func(t *testing.T) {
			etcd := etcdtest.StartProcess(t)
			c := etcd.Client(t)
			put(t, c, spec("changed"), port(1), spec("deleted"), port(1), spec("kept"), port(1), spec("spoiled"), port(1), spec("twice"), port(1))
			m := newMiddleman(t, c)
			f := follow(t, quick(m.url))
			f.await(t, "changed:1 deleted:1 kept:1 spoiled:1 twice:1 | ")

			// The list is read, and its answer held back while the registry goes on.
			read, release := make(chan struct{}), make(chan struct{})
			compact := compactFirst(t, etcd)
			first := true
			m.hook(func(m *middleman) {
				m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
					if kind.compacted {
						etcd = func(req *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
							return compact(req, m.ask)
						}
					}
					resp, err := etcd(req)
					if isList(req) && err == nil && first {
						first = false
						m.mu.Unlock() // the watch goes on
						close(read)
						<-release
						m.mu.Lock()
					}
					return resp, err
				}
			})
			f.source.Resync()
			<-read
			put(t, c, spec("changed"), port(2), spec("created"), port(2), spec("spoiled"), "{", spec("twice"), port(2))
			last := del(t, c, spec("deleted"))
			last = max(last, put(t, c, spec("twice"), port(3)))
			f.awaitRevision(t, last)
			const want = "changed:2 created:2 kept:1 spoiled:1 twice:3 | "
			if got := f.text(); got != want {
				t.Fatalf("before the list is in: %q; want %q", got, want)
			}
			close(release)
			f.awaitThat(t, "the SET", func() bool { return len(f.updates) > 1 && f.updates[len(f.updates)-1].Set })
			if got := f.text(); got != want {
				t.Errorf("after the list: %q; want %q", got, want)
			}
			if u := f.last(); u.Revision != last {
				t.Errorf("the SET is at revision %d; want %d, which was applied already", u.Revision, last)
			}
			if st := f.source.Status(); st.Divergences != 0 || st.Sessions != 1 {
				t.Errorf("%+v; want no divergence", st)
			}
		})
	}
}

func TestAFailedResyncIsTriedAgainAndChangesNothing(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1), ends("a"), addrs("10.0.0.1:1"))
	m := newMiddleman(t, c)
	f := follow(t, quick(m.url))
	f.await(t, "a:1 | a=10.0.0.1:1")
	log := logSince(t)
	for _, test := range []struct{ failures, lines int }{
		{2, 0}, // one failure, with the old connection and with a new one, is no news
		{7, 1},
	} {
		m.hook(func(m *middleman) {
			m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
				if isList(req) && test.failures > 0 {
					test.failures--
					return nil, errors.New("no\nlist today")
				}
				return etcd(req)
			}
		})
		f.resync(t) // D19: v0.4 took a failed read for an empty one
		if got := f.text(); got != "a:1 | a=10.0.0.1:1" {
			t.Errorf("after it %q", got)
		}
		if st := f.source.Status(); st.Sessions != 1 || !st.Connected {
			t.Errorf("%+v; want the first session still", st)
		}
		if n := strings.Count(log(), "no resync with etcd"); n != test.lines {
			t.Errorf("%d lines about it; want %d:\n%s", n, test.lines, log())
		}
	}
}

func TestTheSyncPeriodBringsAFullList(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	put(t, etcd.Client(t), spec("a"), port(1))
	cfg := quick(etcd.URL())
	cfg.SyncPeriod = 50 * time.Millisecond
	f := follow(t, cfg)
	st := f.awaitStatus(t, "3 resyncs", func(st config.Status) bool { return st.Resyncs >= 3 })
	if st.Divergences != 0 || st.Sessions != 1 {
		t.Errorf("%+v; want no divergence", st)
	}
	past := f.past()
	for _, u := range past {
		if !u.Set || len(u.Services) != 1 || u.Revision != 2 {
			t.Errorf("got %+v; want a SET of one service at revision 2", u)
		}
		if u.Services[0].Value != past[0].Services[0].Value {
			t.Error("an unchanged value was decoded again")
		}
	}
}

// A list may come from one life of etcd, and events that are still on their way from the one before it.
func TestAListIsNotUsedBeforeTheWatchHasOutlivedIt(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1))
	m := newMiddleman(t, c)
	asked, release := make(chan struct{}), make(chan struct{})
	m.hook(func(m *middleman) {
		m.onAsk = func(req *etcdserverpb.WatchRequest) bool {
			if create := req.GetCreateRequest(); create != nil && create.RangeEnd == nil {
				m.mu.Unlock()
				close(asked)
				<-release
				m.mu.Lock()
			}
			return true
		}
	})
	f := follow(t, quick(m.url))
	<-asked // the list is in
	time.Sleep(10 * quick().ProbePeriod)
	if got := f.text(); got != "nothing yet" {
		t.Errorf("sent %q though the watch may be of another etcd", got)
	}
	close(release)
	f.await(t, "a:1 | ")
}
