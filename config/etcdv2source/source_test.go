package etcdv2source

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubeproxy/config"
	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/config/etcdv2source/etcdv2test"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// longEnough is how long a test waits for what has to come.
const longEnough = 30 * time.Second

var _ config.Source = (*Source)(nil)

// quick is a configuration in which nothing takes long.
func quick(urls ...string) etcdconfig.Config {
	return etcdconfig.Config{Endpoints: urls, SyncPeriod: time.Hour, ProbePeriod: 50 * time.Millisecond, RequestTimeout: 2 * time.Second, DialTimeout: time.Second}
}

// write sends a PUT or a DELETE to an etcd, and returns the index that it had.
func write(t testing.TB, etcd, method, key string, values ...string) int64 {
	t.Helper()
	index, err := tryWrite(t.Context(), etcd, method, key, values...)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func tryWrite(ctx context.Context, etcd, method, key string, values ...string) (int64, error) {
	form := make(url.Values)
	for i := 0; i+1 < len(values); i += 2 {
		form.Set(values[i], values[i+1])
	}
	to := etcd + "/v2/keys" + key
	var body io.Reader
	if method == http.MethodPut {
		body = strings.NewReader(form.Encode())
	} else {
		to += "?" + form.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, to, body)
	if err != nil {
		return 0, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := writer.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return 0, decodeError(resp.Body, resp.StatusCode)
	}
	var answer response
	if err := decode(resp.Body, maxEvent, &answer); err != nil {
		return 0, err
	}
	return answer.Node.ModifiedIndex, nil
}

// writer is the client of tests. It keeps no connections.
var writer = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func set(t testing.TB, etcd *etcdv2test.Server, name string, port int) {
	t.Helper()
	write(t, etcd.URL, http.MethodPut, recordstest.Spec(name), "value", recordstest.Port(port))
}

// A follower is a source that runs, and what it has sent.
type follower struct {
	*Source
	*recordstest.Follower
}

func follow(t testing.TB, cfg etcdconfig.Config) *follower {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &follower{s, recordstest.Follow(t, s)}
}

// started follows an etcd with one service.
func started(t testing.TB, edits ...func(*etcdconfig.Config)) (*etcdv2test.Server, *follower) {
	t.Helper()
	etcd := etcdv2test.Start(t)
	set(t, etcd, "a", 1)
	cfg := quick(etcd.URL)
	for _, edit := range edits {
		edit(&cfg)
	}
	f := follow(t, cfg)
	f.Await(t, "a:1")
	return etcd, f
}

func TestEveryActionTakesEffect(t *testing.T) {
	etcd, f := started(t)
	put := func(key string, port int, more ...string) int64 {
		return write(t, etcd.URL, http.MethodPut, recordstest.Spec(key), append([]string{"value", recordstest.Port(port)}, more...)...)
	}
	put("b", 2, "prevExist", "false") // create
	f.Await(t, "a:1 b:2")
	put("b", 3, "prevExist", "true") // update
	f.Await(t, "a:1 b:3")
	at := put("b", 4) // set
	f.Await(t, "a:1 b:4")
	at = put("b", 5, "prevIndex", fmt.Sprint(at)) // compareAndSwap
	f.Await(t, "a:1 b:5")
	write(t, etcd.URL, http.MethodDelete, recordstest.Spec("b"), "prevIndex", fmt.Sprint(at)) // compareAndDelete
	f.Await(t, "a:1")
	put("team/c", 6)
	put("team/d", 7)
	f.Await(t, "a:1 team/c:6 team/d:7")
	write(t, etcd.URL, http.MethodDelete, recordstest.Spec("team"), "recursive", "true") // one event for all
	f.Await(t, "a:1")
	write(t, etcd.URL, http.MethodDelete, "/registry", "recursive", "true") // of a directory above
	f.Await(t, "")
	put("e", 8)
	f.Await(t, "e:8")
}

func TestAnEtcdWithoutARegistryIsAState(t *testing.T) {
	etcd := etcdv2test.Start(t)
	f := follow(t, quick(etcd.URL))
	f.Await(t, "")
	set(t, etcd, "a", 1)
	f.Await(t, "a:1")
}

// A value that is set over another has the createdIndex of a new key. It is no new key.
func TestABadValueThatIsSetKeepsTheLastGoodOne(t *testing.T) {
	etcd, f := started(t)
	write(t, etcd.URL, http.MethodPut, recordstest.Spec("a"), "value", "{")
	set(t, etcd, "b", 2)
	f.Await(t, "a:1 b:2")
	write(t, etcd.URL, http.MethodDelete, recordstest.Spec("a"))
	f.Await(t, "b:2")
	write(t, etcd.URL, http.MethodPut, recordstest.Spec("a"), "value", "{")
	set(t, etcd, "c", 3)
	f.Await(t, "b:2 c:3")
}

func TestAHistoryThatWasClearedIsListed(t *testing.T) {
	etcd, f := started(t)
	etcd.Silence() // nothing is told while more is written than etcd remembers
	etcd.SetWindow(1)
	etcd.Resume()
	etcd.Cut()
	for i := range 5 {
		set(t, etcd, "a", 10+i)
		set(t, etcd, "b", 20+i)
	}
	f.Await(t, "a:14 b:24")
	set(t, etcd, "a", 2)
	f.Await(t, "a:2 b:24")
}

func TestAnEtcdThatWasWipedIsBelieved(t *testing.T) {
	for name, prepare := range map[string]func(*etcdv2test.Server){
		"an etcd that names its cluster":     (*etcdv2test.Server).Named,
		"an etcd that does not, as etcd 0.4": (*etcdv2test.Server).Nameless,
	} {
		t.Run(name, func(t *testing.T) {
			log := recordstest.LogSince(t)
			etcd := etcdv2test.Start(t)
			prepare(etcd)
			set(t, etcd, "a", 1)
			f := follow(t, quick(etcd.URL))
			f.Await(t, "a:1")
			for i := range 10 {
				set(t, etcd, "a", 2+i)
			}
			f.Await(t, "a:11")
			etcd.Wipe()
			set(t, etcd, "b", 1)
			etcd.Cut()
			f.Await(t, "b:1")
			f.Resync()
			if st := f.AwaitStatus(t, "a resync", func(st config.Status) bool { return st.Resyncs > 0 }); st.Setbacks != 1 {
				t.Errorf("%d setbacks; want 1: %+v", st.Setbacks, st)
			}
			text := log()
			if n := strings.Count(text, "etcd read at index"); n != 1 {
				t.Errorf("%d lines say that etcd was read; want one, for the first time:\n%s", n, text)
			}
			if !strings.Contains(text, "etcd went back from index") {
				t.Errorf("no warning of an etcd that went back:\n%s", text)
			}
		})
	}
}

// probed waits until a probe has found that everything is known that etcd holds now.
func probed(t *testing.T, f *follower) {
	t.Helper()
	now := time.Now()
	f.AwaitStatus(t, "a probe", func(st config.Status) bool { return st.Current.After(now) })
}

// What others write elsewhere counts too, although no list shows it: an etcd that has lost only that went back. It is listed once, counted
// and named in the log, and then followed.
func TestAnEtcdThatHasLostOnlyWritesElsewhereIsListedOnceAndFollowed(t *testing.T) {
	for name, weak := range map[string]bool{"lists by quorum": false, "lists without quorum": true} {
		t.Run(name, func(t *testing.T) {
			log := recordstest.LogSince(t)
			etcd, f := started(t, func(cfg *etcdconfig.Config) { cfg.Weak = weak })
			etcd.Put("/elsewhere", "1")
			low, restore := etcd.Index(), etcd.Backup()
			for range 20 {
				etcd.Put("/elsewhere", "2")
			}
			probed(t, f)
			high := etcd.Index()
			etcd.Silence() // so that nobody sees the older index on an old connection
			etcd.Cut()
			f.AwaitStatus(t, "an outage", func(st config.Status) bool { return !st.Connected })
			restore()
			etcd.Resume()
			// A list makes the state as current as the list. Only a probe, which finds nothing wrong, makes it more so.
			st := f.AwaitStatus(t, "a probe after the list, or one list after the other", func(st config.Status) bool {
				return st.Sessions > 1 && st.Current.After(st.Listed) || st.Sessions > 3
			})
			if st.Sessions != 2 || st.Setbacks != 1 || st.Revision != low || f.Show() != "a:1" {
				t.Errorf("%s, %+v; want one more session, a setback and index %d", f.Show(), st, low)
			}
			if want := fmt.Sprintf("etcd went back from index %d to %d", high, low); !strings.Contains(log(), want) {
				t.Errorf("the log does not say %q:\n%s", want, log())
			}
			set(t, etcd, "a", 2)
			f.Await(t, "a:2")
		})
	}
}

// Members of an etcd that is being upgraded, some of which name the cluster and some of which do not, are of one etcd.
func TestAnEtcdThatBeginsToNameItsClusterIsTheSame(t *testing.T) {
	etcd := etcdv2test.Start(t)
	etcd.Nameless()
	set(t, etcd, "a", 1)
	f := follow(t, quick(etcd.URL))
	f.Await(t, "a:1")
	for i, as := range []func(){etcd.Named, etcd.Nameless, etcd.Named} {
		as()
		f.Resync()
		st := f.AwaitStatus(t, "a resync", func(st config.Status) bool { return st.Resyncs > uint64(i) })
		if st.Setbacks != 0 || (st.Cluster == "") != (i == 1) {
			t.Errorf("resync %d: %d setbacks with cluster %q; want none", i, st.Setbacks, st.Cluster)
		}
	}
}

// watched is a source with a standing watch, and a resync whose list was asked for at index 20. Since then the watch has told of one
// service, at index 22.
func watched(t *testing.T) (s *Source, updates chan registry.Update) {
	t.Helper()
	s, err := New(quick("http://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	updates = make(chan registry.Update, 10)
	s.out, s.attempt, s.sync = updates, time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	idle := func() *session { return &session{conn: s.cfg.open(t.Context(), s.cfg.Endpoints[0]), cancel: func() {}} }
	s.next = idle()
	s.take(t.Context(), piece{session: s.next, listing: &listing{index: 20, cluster: "x"}})
	s.next, s.touched = idle(), make(map[string]int64)
	told := &response{Action: "set", Node: &node{Key: recordstest.Spec("a"), Value: recordstest.Port(80), CreatedIndex: 22, ModifiedIndex: 22}}
	s.take(t.Context(), piece{session: s.current, event: told})
	if n := len(updates); n != 2 || s.applied != 22 {
		t.Fatalf("%d updates up to index %d; want 2 up to 22", n, s.applied)
	}
	return s, updates
}

func TestWhatTheWatchHasToldIsOverWhenEtcdWentBack(t *testing.T) {
	for name, l := range map[string]listing{
		"an older index":  {index: 7, atLeast: 20, cluster: "x"},
		"another cluster": {index: 21, atLeast: 20, cluster: "y"},
	} {
		s, updates := watched(t)
		<-updates
		<-updates
		s.take(t.Context(), piece{session: s.next, listing: &l})
		if u := <-updates; !u.Set || u.Revision != l.index || len(u.Services) != 0 {
			t.Errorf("%s: SET %v at revision %d with %d services; want an empty SET at %d", name, u.Set, u.Revision, len(u.Services), l.index)
		}
	}
}

func TestAListThatIsOlderThanABrokenWatchIsReadAgain(t *testing.T) {
	s, updates := watched(t)
	s.take(t.Context(), piece{session: s.current, err: io.EOF})
	old := s.next
	s.take(t.Context(), piece{session: old, listing: &listing{index: 21, atLeast: 20, cluster: "x"}})
	defer func() { s.next.end() }()
	if n := len(updates); n != 2 {
		t.Errorf("%d updates; want only the 2 before", n)
	}
	if s.next == old || s.next == nil || s.next.known != 22 {
		t.Errorf("no new list is asked for that has index 22 at least: %+v", s.next)
	}
}

func TestSilenceIsNoticedAndChangesNothing(t *testing.T) {
	etcd, f := started(t)
	etcd.Silence()
	st := f.AwaitStatus(t, "silence", func(st config.Status) bool { return !st.Connected })
	if st.Cause != "silent" || f.Show() != "a:1" {
		t.Errorf("%s, %+v", f.Show(), st)
	}
	etcd.Resume()
	set(t, etcd, "a", 2)
	f.Await(t, "a:2")
	f.AwaitStatus(t, "it answers again", func(st config.Status) bool { return st.Connected })
}

// A poll on a connection that stands, and that is never answered, looks like one that has nothing to tell.
func TestAWatchOfEtcd2ThatDiedWithoutAWordIsFoundOut(t *testing.T) {
	etcd, f := started(t)
	for deadline := time.Now().Add(longEnough); etcd.Polls() == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	etcd.Deafen()
	set(t, etcd, "a", 2)
	f.Await(t, "a:2")
	if st := f.Status(); st.Ends[stale].Count != 1 {
		t.Errorf("%+v", st)
	}
}

// While others write elsewhere in etcd, a watch that has nothing to tell is not taken for dead, and the state stays current.
func TestWritesElsewhereKeepTheStateCurrent(t *testing.T) {
	etcd, f := started(t)
	for range 3 {
		for range 20 {
			write(t, etcd.URL, http.MethodPut, "/registry/minions/x", "value", "1")
		}
		now := time.Now()
		f.AwaitStatus(t, "current", func(st config.Status) bool { return st.Current.After(now) })
	}
	etcd.SetWindow(3) // now the events since the known index are forgotten, and a list has to tell
	for range 20 {
		write(t, etcd.URL, http.MethodPut, "/registry/minions/x", "value", "1")
	}
	now := time.Now()
	st := f.AwaitStatus(t, "current", func(st config.Status) bool { return st.Current.After(now) })
	if st.Sessions != 1 || st.Ends[stale].Count != 0 {
		t.Errorf("%+v", st)
	}
}

func TestAResyncMendsWhatTheWatchHasLost(t *testing.T) {
	etcd, f := started(t)
	set(t, etcd, "b", 2)
	f.Await(t, "a:1 b:2")
	etcd.Lose(recordstest.Spec("b"))
	f.Resync()
	f.Await(t, "a:1")
	if st := f.AwaitStatus(t, "a resync", func(st config.Status) bool { return st.Resyncs > 0 }); st.Divergences != 1 || st.Sessions != 1 {
		t.Errorf("%+v", st)
	}
}

func TestAPasswordIsShown(t *testing.T) {
	etcd := etcdv2test.Start(t)
	set(t, etcd, "a", 1)
	etcd.Demand("tiger")
	f := follow(t, quick(etcd.URL))
	st := f.AwaitStatus(t, "refused", func(st config.Status) bool { return st.Cause == "auth" })
	if !strings.Contains(st.Reason, "no user is set") || strings.Contains(st.Reason, "tiger") {
		t.Errorf("%+v", st)
	}
	cfg := quick(etcd.URL)
	cfg.Username, cfg.Password = "root", "tiger"
	follow(t, cfg).Await(t, "a:1")
}

// One member is gone, another one is silent: the third one serves.
func TestMembersAreTriedInTurn(t *testing.T) {
	etcd, dead := etcdv2test.Start(t), etcdv2test.Start(t)
	set(t, etcd, "a", 1)
	dead.Silence()
	cfg := quick("http://127.0.0.1:1", dead.URL, etcd.URL)
	cfg.RequestTimeout = 100 * time.Millisecond
	cfg.DialTimeout = 100 * time.Millisecond
	follow(t, cfg).Await(t, "a:1")
}

func TestAServerWithoutTheV2APIIsNamed(t *testing.T) {
	etcd := etcdv2test.Start(t)
	etcd.SetVersion(`{"etcdserver":"3.6.1","etcdcluster":"3.6.0"}`)
	etcd.NoKeys()
	f := follow(t, quick(etcd.URL))
	const want = "there is nothing at /v2/keys/registry/services: this is an etcd 3.6.1 that does not serve the v2 API"
	f.AwaitStatus(t, want, func(st config.Status) bool { return strings.HasSuffix(st.Reason, want) && st.Cause == "error" })
}

// History is not filtered: a poll from a past index tells of keys that no list shows.
func TestAHiddenKeyIsNoRecord(t *testing.T) {
	f := added(t, []byte(`{"action":"set","node":{"key":"/registry/services/specs/_hidden","value":"{\"kind\":\"Service\",\"apiVersion\":\"v1beta1\",\"port\":1}","modifiedIndex":1071,"createdIndex":1071}}
{"action":"set","node":{"key":"/registry/services/specs/shown","value":"{\"kind\":\"Service\",\"apiVersion\":\"v1beta1\",\"port\":2}","modifiedIndex":1072,"createdIndex":1072}}`))
	if got := f.Show(); got != "shown:2" || f.records.Len() != 1 {
		t.Errorf("%d keys, %s; want the one that is not hidden", f.records.Len(), got)
	}
}

// configFile is a configuration that v0.4's etcd client saved, as -etcd_config names it, in which nothing takes long.
func configFile(t *testing.T, text string) etcdconfig.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "etcd.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, warnings, err := etcdconfig.LoadConfigFile(path)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, warnings %q", err, warnings)
	}
	fast := quick()
	cfg.SyncPeriod, cfg.ProbePeriod, cfg.RequestTimeout, cfg.DialTimeout = fast.SyncPeriod, fast.ProbePeriod, fast.RequestTimeout, fast.DialTimeout
	return cfg
}

// The cluster of v0.4's users: TLS with client certificates, several machines of which one is gone, STRONG.
func TestAConfigFileOfV04IsFollowed(t *testing.T) {
	ca := etcdtest.NewCA(t)
	serverCert, serverKey := ca.Issue(t, "etcd")
	cert, key := ca.Issue(t, "proxy")
	pair, err := tls.LoadX509KeyPair(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	authorities, err := remote.NewRoots(remote.Text{Path: ca.File})
	if err != nil {
		t.Fatal(err)
	}
	etcd := etcdv2test.StartTLS(t, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities.Pool()})
	const file = `{"config":{"certFile":%q,"keyFile":%q,"caCertFiles":[%q],"timeout":1000000000,"consistency":"STRONG"},"cluster":{"leader":"https://127.0.0.1:1","machines":["https://127.0.0.1:1",%q]}}`
	f := follow(t, configFile(t, fmt.Sprintf(file, cert, key, ca.File, etcd.URL)))
	f.Await(t, "")
	etcd.Put(recordstest.Spec("a"), recordstest.Port(1))
	f.Await(t, "a:1")
	f.Resync()
	f.AwaitStatus(t, "a resync", func(st config.Status) bool { return st.Resyncs > 0 })
	if n := etcd.WeakLists(); n > 0 {
		t.Errorf("%d lists without quorum; want none, for STRONG", n)
	}
	stranger := etcdtest.NewCA(t)
	cert, key = stranger.Issue(t, "stranger")
	for name, text := range map[string]string{
		"a certificate of somebody else": fmt.Sprintf(file, cert, key, ca.File, etcd.URL),
		"authorities of somebody else":   fmt.Sprintf(file, cert, key, stranger.File, etcd.URL),
	} {
		f := follow(t, configFile(t, text))
		st := f.AwaitStatus(t, name, func(st config.Status) bool { return st.Cause == "tls" })
		if st.Ready {
			t.Errorf("%s: %+v; want nothing read", name, st)
		}
	}
}

// A member that lags behind is asked with WEAK, and never takes back what is known.
func TestAWeakListThatIsOlderIsAskedForAgain(t *testing.T) {
	etcd := etcdv2test.Start(t)
	set(t, etcd, "a", 1)
	f := follow(t, configFile(t, fmt.Sprintf(`{"config":{"consistency":"WEAK"},"cluster":{"machines":[%q]}}`, etcd.URL)))
	f.Await(t, "a:1")
	if n := etcd.WeakLists(); n != 1 {
		t.Errorf("%d lists without quorum; want one", n)
	}
	etcd.Lag()
	set(t, etcd, "a", 2)
	f.Await(t, "a:2")
	f.Resync()
	st := f.AwaitStatus(t, "a resync", func(st config.Status) bool { return st.Resyncs > 0 })
	if f.Show() != "a:2" || st.Setbacks != 0 || st.Divergences != 0 || etcd.WeakLists() != 2 {
		t.Errorf("%s after %d lists without quorum, %+v; want what is known", f.Show(), etcd.WeakLists(), st)
	}
}

// A member that has not heard yet what others wrote elsewhere lags behind as well: that is no setback.
func TestAWeakListThatLagsBehindWritesElsewhereIsAskedForAgain(t *testing.T) {
	etcd, f := started(t, func(cfg *etcdconfig.Config) { cfg.Weak = true })
	etcd.Lag()
	for range 20 {
		etcd.Put("/elsewhere", "1")
	}
	probed(t, f)
	f.Resync()
	f.Until(t, "a second SET", func() bool { return f.Sets() > 1 })
	at, st := f.Last().Revision, f.Status()
	if f.Show() != "a:1" || at != etcd.Index() || st.Setbacks != 0 || st.Divergences != 0 || etcd.WeakLists() != 2 {
		t.Errorf("%s at index %d after %d lists without quorum, %+v; want what there is at index %d", f.Show(), at, etcd.WeakLists(), st, etcd.Index())
	}
}
