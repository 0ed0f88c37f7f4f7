package etcdsource

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource/etcdtest"
)

func TestAnEtcdThatIsKilledChangesNothing(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1), ends("a"), addrs("10.0.0.1:1"))
	cfg := quick(etcd.URL())
	cfg.ProbePeriod = patience // the silences of a busy machine have lines, too
	f := follow(t, cfg)
	f.await(t, "a:1 | a=10.0.0.1:1")
	log := logSince(t)
	etcd.Kill()
	f.awaitStatus(t, "a refused connection", func(st config.Status) bool { return strings.Contains(st.Reason, "connection refused") })
	if got := f.text(); got != "a:1 | a=10.0.0.1:1" {
		t.Errorf("without etcd it is %q", got)
	}
	etcd.Start(t)
	back := time.Now()
	put(t, c, spec("a"), port(2))
	f.await(t, "a:2 | a=10.0.0.1:1")
	t.Logf("effective %v after etcd was ready", time.Since(back))
	f.stop() // the last line is written after the Update is sent
	text := log()
	if n := strings.Count(text, "unreachable"); n != 1 {
		t.Errorf("%d lines about the outage; want one, however many attempts there were:\n%s", n, text)
	}
	if n := strings.Count(text, "answers again after"); n != 1 {
		t.Errorf("%d lines about its end; want one:\n%s", n, text)
	}
}

func TestHistoryThatWasCompactedMeanwhileIsNotNeeded(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1), spec("b"), port(1))
	link := etcdtest.NewLink(t, etcd.Addr())
	f := follow(t, quick(link.Addr()))
	f.await(t, "a:1 b:1 | ")
	link.Down()
	del(t, c, spec("a"))
	revision := put(t, c, spec("b"), port(2), spec("c"), port(3))
	if _, err := c.Compact(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	link.Cut()
	link.Up()
	f.await(t, "b:2 c:3 | ")
}

// The hardest case of all: same cluster id, same member id, same revisions, other values. Nothing on the
// wire differs but the values themselves.
func TestAWipedEtcdIsNotMistakenForTheOldOne(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	first := put(t, etcd.Client(t), spec("a"), port(1), spec("b"), port(1), ends("a"), addrs("10.0.0.1:1"))
	link := etcdtest.NewLink(t, etcd.Addr())
	f := follow(t, quick(link.Addr()))
	f.await(t, "a:1 b:1 | a=10.0.0.1:1")
	var cluster string
	f.awaitStatus(t, "the first list", func(st config.Status) bool { cluster = st.Cluster; return st.Ready })

	link.Down()
	etcd.Kill()
	etcd.SwapDataDir(t.TempDir())
	etcd.Start(t)
	second := put(t, etcd.Client(t), spec("a"), port(2), spec("b"), port(1), ends("a"), addrs("10.0.0.2:2"))
	link.Cut()
	link.Up()
	f.await(t, "a:2 b:1 | a=10.0.0.2:2")
	f.awaitStatus(t, "the second list", func(st config.Status) bool { return st.Sessions == 2 && st.Revision == second })
	if st := f.source.Status(); first != second || st.Revision != second || st.Cluster != cluster {
		t.Errorf("this was to be revision %d = %d of cluster %s: %+v", first, second, cluster, st)
	}
}

func TestARestoredEtcdIsTheTruth(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	put(t, etcd.Client(t), spec("a"), port(1))
	etcd.Stop()
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(etcd.DataDir())); err != nil {
		t.Fatal(err)
	}
	etcd.Start(t)
	put(t, etcd.Client(t), spec("a"), port(2), spec("b"), port(2))
	f := follow(t, quick(etcd.URL()))
	f.await(t, "a:2 b:2 | ")
	put(t, etcd.Client(t), spec("a"), "{") // the last good version is of a future that is about to be lost
	f.awaitRevision(t, 5)

	log := logSince(t)
	etcd.Kill()
	etcd.SwapDataDir(backup)
	etcd.Start(t)
	f.await(t, "a:1 | ")
	if u := f.last(); !u.Set || u.Revision != 2 {
		t.Errorf("got %+v; want a SET at revision 2", u)
	}
	if !strings.Contains(log(), "etcd went back from revision 5 to 2") {
		t.Errorf("that was said nowhere:\n%s", log())
	}
	put(t, etcd.Client(t), spec("a"), "{", spec("c"), port(3)) // at revisions seen before
	f.await(t, "a:1 c:3 | ")
}

func TestAnotherClusterIsTheTruthToo(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	other := etcdtest.StartProcess(t, "--initial-cluster-token=other")
	put(t, etcd.Client(t), spec("a"), port(1))
	m := newMiddleman(t, etcd.Client(t))
	f := follow(t, quick(m.url))
	f.await(t, "a:1 | ")

	// The watch of one and the list of another never make a session.
	m.hook(func(m *middleman) {
		m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
			resp, err := etcd(req)
			if err == nil {
				resp.Header.ClusterId++
			}
			return resp, err
		}
	})
	m.cancel("for the test", 0)
	f.awaitStatus(t, "two clusters", func(st config.Status) bool { return strings.Contains(st.Reason, "two clusters") })
	if n := f.source.Status().Sessions; n != 1 {
		t.Errorf("%d sessions; want none with two clusters", n)
	}

	put(t, other.Client(t), spec("b"), port(1))
	moved := newMiddleman(t, other.Client(t))
	log := logSince(t)
	m.hook(func(m *middleman) { m.kv, m.watch, m.onRange = moved.kv, moved.watch, nil })
	f.await(t, "b:1 | ")
	if !strings.Contains(log(), "another etcd cluster") {
		t.Errorf("that was said nowhere:\n%s", log())
	}
}

func TestACancelledWatchIsBegunAgain(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	m := newMiddleman(t, c)
	f := follow(t, quick(m.url))
	for i, cancel := range []func(){
		func() { m.cancel("etcdserver: permission denied", 0) },
		func() { m.cancel("", 17) },
	} {
		f.awaitStatus(t, "one more session", func(st config.Status) bool { return st.Sessions == uint64(i+1) })
		cancel()
	}
	f.awaitStatus(t, "one more session", func(st config.Status) bool { return st.Sessions == 3 })
	put(t, c, spec("a"), port(1))
	f.await(t, "a:1 | ")
}

func TestADeadMemberInTheListDoesNotMatter(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	put(t, etcd.Client(t), spec("a"), port(1))
	refusing := etcdtest.StartProcess(t)
	refusing.Kill()
	silent := etcdtest.NewLink(t, etcd.Addr())
	silent.Down()
	for range 3 { // each client shuffles
		f := follow(t, quick(refusing.URL(), " "+silent.Addr(), etcd.URL()+"/ "))
		f.await(t, "a:1 | ")
		f.resync(t)
		f.stop()
	}
}

func TestAFrozenEtcdIsWaitedFor(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1))
	f := follow(t, quick(etcd.URL()))
	f.await(t, "a:1 | ")
	etcd.Pause()
	st := f.awaitStatus(t, "not connected", func(st config.Status) bool { return !st.Connected })
	if !strings.Contains(st.Reason, "no answer") || f.text() != "a:1 | " {
		t.Errorf("of a frozen etcd: %+v, %q", st, f.text())
	}
	etcd.Resume()
	back := time.Now()
	f.awaitStatus(t, "connected", func(st config.Status) bool { return st.Connected })
	put(t, c, spec("a"), port(2))
	f.await(t, "a:2 | ")
	t.Logf("effective %v after etcd went on", time.Since(back))
}
