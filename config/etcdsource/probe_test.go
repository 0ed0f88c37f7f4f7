package etcdsource

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource/etcdtest"
)

// isProgress reports whether a request asks for progress.
func isProgress(req *etcdserverpb.WatchRequest) bool { return req.GetProgressRequest() != nil }

func TestAWatchThatDiedWithoutAWordIsFoundOut(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1))
	link := etcdtest.NewLink(t, etcd.Addr())
	cfg := quick(link.Addr())
	cfg.RequestTimeout = time.Hour // nothing may hang on the connections from before, either
	f := follow(t, cfg)
	f.await(t, "a:1 | ")
	link.Swallow()
	start := time.Now()
	put(t, c, spec("a"), port(2))
	f.await(t, "a:2 | ")
	t.Logf("found out after %v, at a probe period of %v", time.Since(start), quick().ProbePeriod)
	if n := f.source.Status().Sessions; n != 2 {
		t.Errorf("%d sessions; want 2", n)
	}
}

func TestANetworkThatSwallowsEverythingIsLeftBehindOnceItHeals(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1))
	link := etcdtest.NewLink(t, etcd.Addr())
	f := follow(t, quick(link.Addr()))
	f.await(t, "a:1 | ")
	f.source.Resync() // a list may hang in it as well
	link.Down()
	put(t, c, spec("a"), port(2))
	f.awaitStatus(t, "not connected", func(st config.Status) bool { return !st.Connected })
	link.Up()
	start := time.Now()
	f.await(t, "a:2 | ")
	t.Logf("effective %v after the network was back, at a probe period of %v", time.Since(start), quick().ProbePeriod)
}

func TestAnIdleWatchIsNotTakenForADeadOne(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	m := newMiddleman(t, c)
	cfg := quick(m.url)
	cfg.ProbePeriod = 500 * time.Millisecond // time enough for an answer, however busy this machine is
	f := follow(t, cfg)
	f.awaitRevision(t, 1)
	asked, reads, late := 0, 0, false
	var since time.Time // when the watch was asked what it has not answered yet; zero: nothing
	busy, calm := make(chan struct{}), make(chan struct{})
	m.hook(func(m *middleman) {
		m.onEvents = func(*etcdserverpb.WatchResponse) bool {
			late = late || !since.IsZero() && time.Since(since) > cfg.ProbePeriod/2
			since = time.Time{}
			return true
		}
		m.onAsk = func(*etcdserverpb.WatchRequest) bool {
			since = time.Now()
			switch asked++; asked {
			case 4:
				close(busy)
			case 7: // the one before was answered with the last revision there is
				close(calm)
			}
			return true
		}
		m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
			reads++
			return etcd(req)
		}
	})
	writing := true
	for writing { // to keys that are none of ours
		put(t, c, "/elsewhere", "x")
		select {
		case <-busy:
			writing = false
		default:
		}
	}
	<-calm
	m.hook(func(*middleman) {
		switch {
		case reads > 0 && late:
			t.Logf("%d reads, and the watch answered late", reads)
		case reads > 0:
			t.Errorf("%d reads, though the watch answered every time", reads)
		}
	})

	// It says nothing at all any more, and there are no writes: that is no reason to leave it.
	quiet := make(chan struct{})
	m.hook(func(m *middleman) {
		m.onAsk = func(req *etcdserverpb.WatchRequest) bool { return !isProgress(req) }
		m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
			if reads++; reads == 3 {
				close(quiet)
			}
			return etcd(req)
		}
	})
	<-quiet
	if st := f.source.Status(); st.Sessions != 1 || !st.Connected {
		t.Errorf("%+v; want the first session still", st)
	}
}

// An etcd that answers no progress requests: a proxy, or one whose requests come too early. Foreign keys
// are busy, so its revision always runs ahead of what the watch can tell.
func TestAWatchThatNeverAnswersIsProvedAliveByReading(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1), spec("b"), port(1))
	m := newMiddleman(t, c)
	asked, proofs := 0, 0
	twice := make(chan struct{})
	m.hook(func(m *middleman) {
		m.onAsk = func(req *etcdserverpb.WatchRequest) bool {
			if isProgress(req) {
				asked++
			}
			return !isProgress(req)
		}
		m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
			if req.MinModRevision > 0 {
				if proofs++; proofs == 2 {
					close(twice)
				}
			}
			return etcd(req)
		}
	})
	f := follow(t, quick(m.url))
	f.await(t, "a:1 b:1 | ")
	for busy := true; busy; {
		put(t, c, "/elsewhere", "x")
		select {
		case <-twice:
			busy = false
		default:
		}
	}
	if st := f.source.Status(); st.Sessions != 1 || !st.Connected {
		t.Errorf("%+v; want the first session still", st)
	}
	f.resync(t)
	m.hook(func(*middleman) {
		if asked != maxUnheeded {
			t.Errorf("asked for progress %d times; want %d and no more", asked, maxUnheeded)
		}
	})

	// Now the watch is really dead, first to a put, then to a delete, which only the count shows.
	for i, change := range []func(){
		func() { put(t, c, spec("a"), port(2)) },
		func() { del(t, c, spec("b")) },
	} {
		m.hook(func(m *middleman) {
			m.onEvents = func(resp *etcdserverpb.WatchResponse) bool { return len(resp.Events) == 0 }
		})
		change()
		f.awaitStatus(t, "one more session", func(st config.Status) bool { return st.Sessions == uint64(i+2) })
		f.await(t, []string{"a:2 b:1 | ", "a:2 | "}[i])
	}
}

func TestAReadThatShowsAnOlderRevisionEndsTheSession(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1))
	m := newMiddleman(t, c)
	f := follow(t, quick(m.url))
	f.await(t, "a:1 | ")
	log := logSince(t)
	m.hook(func(m *middleman) {
		m.onAsk = func(req *etcdserverpb.WatchRequest) bool { return !isProgress(req) }
		m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
			resp, err := etcd(req)
			if req.CountOnly {
				resp.Header.Revision = 1
			}
			return resp, err
		}
	})
	f.awaitStatus(t, "another session", func(st config.Status) bool { return st.Sessions > 1 })
	if !strings.Contains(log(), "it went back from revision 2 to 1") {
		t.Errorf("that was said nowhere:\n%s", log())
	}
}

func TestItWorksBehindAGRPCProxy(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1))
	f := follow(t, streamed(etcdtest.StartGRPCProxy(t, etcd))) // which has no streams
	f.await(t, "a:1 | ")
	for i := range 50 {
		put(t, c, spec("a"), port(100+i), "/elsewhere", "x")
	}
	f.await(t, "a:149 | ")
	if _, err := c.Txn(t.Context()).Then(clientv3.OpPut(spec("b"), port(2)), clientv3.OpDelete(spec("a"))).Commit(); err != nil {
		t.Fatal(err)
	}
	f.await(t, "b:2 | ")

	// The proxy resumes its watch behind our back; whatever that loses, a resync finds.
	etcd.Kill()
	etcd.Start(t)
	revision := put(t, etcd.Client(t), spec("c"), port(3))
	for f.source.Status().Revision < revision {
		f.resync(t)
	}
	f.await(t, "b:2 c:3 | ")
	t.Logf("%+v", f.source.Status())
}
