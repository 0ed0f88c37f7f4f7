package etcdsource

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/config/records"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// mustRead compares a log with what it is to be, line by line. In what is wanted, … stands for
// anything.
func mustRead(t *testing.T, text string, want ...string) {
	t.Helper()
	got := recordstest.LogLines(text)
	for _, line := range got {
		t.Log(line)
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("line %d is missing; want: %s", i+1, want[i])
		case i >= len(want):
			t.Errorf("one line too many: %s", got[i])
		case !regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(want[i]), "…", ".*") + "$").MatchString(got[i]):
			t.Errorf("line %d reads: %s\nwant:          %s", i+1, got[i], want[i])
		}
	}
}

// patient is quick for tests that read each line of the log, of outages in which connections break: a machine at work is silent for a while at times, as
// an etcd is that begins, and each silence has lines.
func patient(urls ...string) Config {
	cfg := quick(urls...)
	cfg.DialTimeout, cfg.RequestTimeout, cfg.ProbePeriod = patience, patience, patience
	return cfg
}

// followed is a source in its first session, and a log that begins then.
func followed(t *testing.T, cfg Config, registry string) (*follower, func() string) {
	t.Helper()
	source, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return followedSource(t, source, registry)
}

func followedSource(t *testing.T, source *Source, registry string) (*follower, func() string) {
	t.Helper()
	log := logSince(t)
	f := followSource(t, source)
	f.await(t, registry)
	for deadline := time.Now().Add(patience); !strings.Contains(log(), "etcd read at"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the log does not say that etcd was read")
		}
	}
	return f, logSince(t)
}

func TestTenMinutesWithoutEtcdTakeADozenLines(t *testing.T) {
	log := logSince(t)
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Endpoints: []string{"127.0.0.1:1"}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := s.Run(ctx, nil); err != nil {
			t.Error(err)
		}
		if n := s.Status().Attempts; n < 600 {
			t.Errorf("%d attempts; want one a second or more", n)
		}
	})
	const refused = "etcd at [http://127.0.0.1:1] unreachable: open a watch: dial tcp 127.0.0.1:1: connect: connection refused; "
	want := []string{"I watching etcd at [http://127.0.0.1:1]", "W " + refused + "nothing is known yet, trying again"}
	for _, since := range []string{"1?s", "3?s", "1m1?s", "2m3?s", "5m1?s"} {
		want = append(want, "W "+refused+"without it since … ("+strings.ReplaceAll(since, "?", "…")+", … attempts); nothing is known yet, trying again")
	}
	mustRead(t, log(), want...)
}

func TestTenMinutesOfChangingTroubleTakeTensOfLines(t *testing.T) {
	for _, test := range []struct {
		name     string
		causes   []Cause // one after the other, each for a second
		recovers bool    // in between
	}{
		{"two causes in turn", []Cause{Broken, Silent}, false},
		{"every cause in turn", []Cause{Broken, Insecure, Silent, Refused, Leaderless, Unable, Cancelled, Compacted, Stale, Behind, WentBack}, false},
		{"an etcd that comes and goes", []Cause{Broken}, true},
		{"an etcd that goes in two ways", []Cause{Broken, Leaderless}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			log := logSince(t)
			synctest.Test(t, func(t *testing.T) {
				x := standing(t)
				for i := range 600 {
					x.trouble(remote.Because(test.causes[i%len(test.causes)], errors.New("for the test")))
					if time.Sleep(time.Second / 2); test.recovers {
						x.well()
					}
					time.Sleep(time.Second / 2)
				}
			})
			lines := recordstest.LogLines(log())
			if n := len(lines); n < 6 || n > 99 {
				t.Errorf("%d lines; want tens:\n%s", n, strings.Join(lines, "\n"))
			}
			t.Logf("%d lines", len(lines))
		})
	}
}

func TestEveryOutageHasItsLines(t *testing.T) {
	log := logSince(t)
	synctest.Test(t, func(t *testing.T) {
		x := standing(t)
		for range 3 {
			for range 4 {
				x.trouble(errors.New("for the test"))
				time.Sleep(time.Second)
			}
			x.well()
			time.Sleep(time.Second)
		}
	})
	const goes, comes = "W etcd at […] unreachable: for the test; nothing is known yet, trying again", "I etcd at […] answers again after 4s: …"
	mustRead(t, log(), goes, comes, goes, comes, goes, comes)
}

func TestTheLogOfAStartWithoutEtcd(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	put(t, etcd.Client(t), spec("a"), port(1), spec("b"), "{", ends("a"), addrs("10.0.0.1:1"))
	etcd.Stop()
	log := logSince(t)
	f := follow(t, patient(etcd.URL()))
	f.awaitStatus(t, "attempts", func(st config.Status) bool { return st.Attempts > 3 })
	etcd.Start(t)
	f.await(t, "a:1 | a=10.0.0.1:1")
	f.stop()
	mustRead(t, log(),
		"I watching etcd at […]",
		"W etcd at […] unreachable: open a watch: dial tcp …: connect: connection refused; nothing is known yet, trying again",
		`E bad value of key "/registry/services/specs/b" at revision 3: not valid JSON: …; nothing is known in its place`,
		"I etcd read at revision 4: 1 services, 1 endpoints; 1 keys cannot be used",
	)
}

func TestTheLogOfAnOutageSaysWhatDiffersAfterIt(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1), spec("b"), port(1), spec("c"), port(1))
	link := etcdtest.NewLink(t, etcd.Addr())
	f, log := followed(t, patient(link.Addr()), "a:1 b:1 c:1 | ")
	link.Down()
	put(t, c, spec("a"), port(2))
	del(t, c, spec("b"))
	link.Up() // first: an attempt that finds it down ends only after its time, and has a line
	link.Cut()
	f.await(t, "a:2 c:1 | ")
	f.stop()
	mustRead(t, log(),
		"W etcd at […] unreachable: …; what was known at revision 4 stays in force, trying again",
		`I etcd at […] answers again after …: read at revision 6, was 4; 2 keys differ: "/registry/services/specs/a", "/registry/services/specs/b"`,
	)
}

func TestTheLogOfAnEtcdThatRefusesUs(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	put(t, etcd.Client(t), spec("a"), port(1))
	cfg := asProxy(patient(etcd.URL()))
	f, log := followed(t, cfg, "a:1 | ")
	c := withAuth(t, etcd)
	if _, err := c.UserChangePassword(t.Context(), "proxy", "another"); err != nil {
		t.Fatal(err)
	}
	etcd.Kill()
	etcd.Start(t)
	f.awaitStatus(t, "refused", func(st config.Status) bool { return st.Cause == Refused.String() })
	c = etcd.Client(t, func(cfg *clientv3.Config) { cfg.Username, cfg.Password = "root", "root password" })
	if _, err := c.UserChangePassword(t.Context(), "proxy", "proxy password"); err != nil {
		t.Fatal(err)
	}
	f.awaitStatus(t, "connected", func(st config.Status) bool { return st.Connected })
	if _, err := c.RoleRevokePermission(t.Context(), "reader", registry.Prefix, clientv3.GetPrefixRangeEnd(registry.Prefix)); err != nil {
		t.Fatal(err)
	}
	etcd.Kill()
	etcd.Start(t)
	f.awaitStatus(t, "refused", func(st config.Status) bool { return st.Cause == Refused.String() && !st.Connected })
	f.stop()
	const stays = "; what was known at revision 2 stays in force, trying again"
	mustRead(t, log(),
		"W etcd at […] unreachable: …"+stays,
		`W etcd at […] refuses us: log in as "proxy": etcdserver: authentication failed, invalid user ID or password; without it since … (…, … attempts)`+stays,
		"I etcd at […] answers again after …: read at revision 2, was 2; no key differs",
		"W etcd at […] unreachable: …"+stays, // and that it refuses us again will be said in ten seconds
	)
}

func TestEverySetbackHasItsLine(t *testing.T) {
	log := logSince(t)
	x := standing(t)
	x.use(listed(9)) // beside the watch
	x.cluster = 1
	for _, l := range []listing{{cluster: 1, revision: 5}, {cluster: 1, revision: 3}, {cluster: 2, revision: 7}} {
		x.trouble(errors.New("for the test"))
		x.begin(l)
	}
	var said []string
	for _, line := range recordstest.LogLines(log()) {
		if strings.HasSuffix(line, "for the truth") {
			said = append(said, line)
		}
	}
	if len(said) != 3 || x.Status().Setbacks != 3 {
		t.Errorf("%d setbacks, and these lines:\n%s\nwant 3 of each", x.Status().Setbacks, strings.Join(said, "\n"))
	}
}

func TestTheLogOfARestoredEtcd(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	put(t, etcd.Client(t), spec("a"), port(1))
	etcd.Stop()
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(etcd.DataDir())); err != nil {
		t.Fatal(err)
	}
	etcd.Start(t)
	put(t, etcd.Client(t), spec("a"), port(2), spec("b"), port(2))
	f, log := followed(t, patient(etcd.URL()), "a:2 b:2 | ")
	etcd.Kill()
	etcd.SwapDataDir(backup)
	etcd.Start(t)
	f.await(t, "a:1 | ")
	f.awaitStatus(t, "that of the older etcd", func(st config.Status) bool { return st.Connected && st.Revision == 2 })
	f.stop()
	const both = `2 keys differ: "/registry/services/specs/a", "/registry/services/specs/b"`
	mustRead(t, log(),
		"W etcd at […] unreachable: …; what was known at revision 4 stays in force, trying again",
		"W etcd went back from revision 4 to 2 (restored or wiped?); taking that for the truth",
		"I etcd at […] answers again after …: read at revision 2, was 4; "+both,
	)
	if n := f.source.Status().Setbacks; n != 1 {
		t.Errorf("%d setbacks; want 1", n)
	}
}

// By the time that we can read it, the new etcd has written more than the old one had: neither its ids
// nor its revision tell that it is another one. Its keys do.
func TestAWipedEtcdThatHasOvertakenTheOldOneIsNoticed(t *testing.T) {
	for _, test := range []struct {
		name  string
		write func(*testing.T, *clientv3.Client)
		keys  string // that cannot be so
	}{
		{"other values at the same revisions", func(t *testing.T, c *clientv3.Client) {
			put(t, c, spec("a"), port(2), spec("b"), port(1), spec("c"), port(1), spec("a"), port(2), spec("a"), port(2))
		}, `2 keys differ: "/registry/services/specs/b", "/registry/services/specs/c"`},
		{"the same keys, created in another order", func(t *testing.T, c *clientv3.Client) {
			put(t, c, spec("b"), port(1), spec("a"), port(1), "/elsewhere", "", spec("c"), port(2), spec("c"), port(2))
		}, `2 keys differ: "/registry/services/specs/a", "/registry/services/specs/b"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			etcd := etcdtest.StartProcess(t)
			put(t, etcd.Client(t), spec("a"), port(1), spec("b"), port(1), spec("b"), port(1))
			link := etcdtest.NewLink(t, etcd.Addr())
			f, log := followed(t, patient(link.Addr()), "a:1 b:1 | ")
			link.Down()
			etcd.Kill()
			etcd.SwapDataDir(t.TempDir())
			etcd.Start(t)
			test.write(t, etcd.Client(t))
			link.Up()
			link.Cut()
			f.awaitStatus(t, "the second session", func(st config.Status) bool { return st.Sessions == 2 && st.Revision == 6 })
			f.stop()
			text := log()
			want := "etcd is at revision 6, but not by way of the revision 4 that is known (restored or wiped?); taking that for the truth: of what is older, " + test.keys
			if !slices.Contains(recordstest.LogLines(text), "W "+want) {
				t.Errorf("want the warning: %s\nin the log:\n%s", want, text)
			}
			if n := f.source.Status().Setbacks; n != 1 {
				t.Errorf("%d setbacks; want 1", n)
			}
		})
	}
}

// After two that have ended at once it takes a session that lasts to end the outage.
func TestTheLogOfAWatchThatEnds(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1))
	m := newMiddleman(t, c)
	cfg := patient(m.url)
	cfg.ProbePeriod = time.Second // the answer to its question ends the outage
	source, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	source.log = records.NewOutageLog(3*time.Second, causeNames()...) // on a machine at work a session that ends at once may stand for one
	f, log := followedSource(t, source, "a:1 | ")
	for i, end := range []func(){
		func() { m.cancel("", 17) },
		func() { m.cancel("for the\ntest", 0) },
		func() { m.cancel("rpc error: code = PermissionDenied desc = etcdserver: permission denied", 0) },
	} {
		end()
		f.awaitStatus(t, "one more session", func(st config.Status) bool { return st.Sessions == uint64(i+2) })
	}
	f.awaitStatus(t, "connected", func(st config.Status) bool { return st.Connected })
	f.stop()
	const (
		stays = "; what was known at revision 2 stays in force, trying again"
		again = "I etcd at […] answers again after …: read at revision 2, was 2; no key differs"
	)
	mustRead(t, log(),
		"W etcd at […] has to be read again: watch cancelled: what it had to tell next was compacted at revision 17"+stays, again,
		`W etcd at […] has to be read again: watch cancelled: "for the\ntest"`+stays,
		`W etcd at […] refuses us: watch cancelled: "etcdserver: permission denied" (no user is set); without it since … (…)`+stays,
		"I etcd at […] answers again after …: the watch has outlived it, at revision 2",
	)
}

func TestTheLogOfSilence(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1))
	link := etcdtest.NewLink(t, etcd.Addr())
	cfg := quick(link.Addr())
	cfg.ProbePeriod = 500 * time.Millisecond // a machine at work is silent for 400 ms at times, and each silence has lines
	f, log := followed(t, cfg, "a:1 | ")
	etcd.Pause()
	f.awaitStatus(t, "not connected", func(st config.Status) bool { return !st.Connected })
	etcd.Resume()
	f.awaitStatus(t, "connected", func(st config.Status) bool { return st.Connected })
	link.Swallow()
	put(t, c, spec("a"), port(2))
	f.await(t, "a:2 | ")
	f.awaitStatus(t, "connected again", func(st config.Status) bool { return st.Connected }) // the same goroutine writes the last line then, and stop waits for it
	f.stop()
	const stays = "; what was known at revision 2 stays in force, trying again"
	mustRead(t, log(),
		"W etcd at […] does not answer: watch silent, read failed: no answer for 1s"+stays,
		"I etcd at […] answers again after …: the watch has outlived it, at revision 2",
		"W etcd at […] has to be read again: watch dead: it stopped at revision 2, and etcd has reached 3"+stays,
		`I etcd at […] answers again after …: read at revision 3, was 2; one key differs: "/registry/services/specs/a"`,
	)
}

func TestTheLogOfABadRecordEndsWithItsMending(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1))
	f, log := followed(t, patient(etcd.URL()), "a:1 | ")
	for _, kv := range [][2]string{{spec("a"), "{"}, {spec("b"), "{"}, {spec("a"), "["}, {spec("a"), "{"}, {spec("a"), port(2)}, {spec("a"), port(3)}} {
		f.awaitRevision(t, put(t, c, kv[0], kv[1])) // a value that another one overtakes is not read
	}
	f.stop()
	mustRead(t, log(),
		`E bad value of key "/registry/services/specs/a" at revision 3: …; its value of revision 2 stays in force`,
		`E bad value of key "/registry/services/specs/b" at revision 4: …; nothing is known in its place`,
		`E bad value of key "/registry/services/specs/a" at revision 5: …; its value of revision 2 stays in force`,
		`I key "/registry/services/specs/a" can be used again, since revision 7`,
	)
}

func TestTheLogOfAnOutageNamesAKeyThatElectsAnother(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("pg"), electing(leader), ends("pg"), called("m1", "m2"), leader, "m1")
	link := etcdtest.NewLink(t, etcd.Addr())
	f := follow(t, mayFollow("http://"+link.Addr()))
	f.await(t, "pg:1 | pg=10.0.0.1:1")
	log := logSince(t)
	link.Down()
	f.awaitStatus(t, "not connected", func(st config.Status) bool { return !st.Connected })
	put(t, c, leader, "m2")
	link.Up()
	f.await(t, "pg:1 | pg=10.0.0.2:1")
	f.stop()
	if lines := log(); !strings.Contains(lines, `was 4; one key differs: "/service/pg/leader"`) {
		t.Errorf("the log says:\n%s", lines)
	}
}

// A session may end between its first list and the one that has the keys, and its Update is never sent.
func TestTheLogOfAnOutageNamesWhatASessionFoundThatEndedBeforeItsUpdate(t *testing.T) {
	log := logSince(t)
	x, out := followingSession(t)
	x.cluster, x.applied, x.watches, x.stood = 1, 5, make(map[string]int64), time.Time{}
	x.log.Failed(int(Silent), "etcd unreachable", "a test has it so")
	list := func(revision int64) (l listing) {
		l.list.Add(theirs("m2", "m1"))
		l.cluster, l.revision = 1, revision
		return l
	}
	if err := x.begin(list(6)); err != nil || x.pendingKey != leader {
		t.Fatalf("error %v, a watch is asked for of %q", err, x.pendingKey)
	}
	next, _ := followingSession(t)
	next.Source, next.stood = x.Source, time.Time{}
	if err := next.begin(list(8)); err != nil || len(out) != 1 {
		t.Fatalf("error %v, %d updates; want one", err, len(out))
	}
	if lines := log(); !strings.Contains(lines, "read at revision 8, was 5; one key differs: \""+ends("pg")) {
		t.Errorf("the log says:\n%s", lines)
	}
}
