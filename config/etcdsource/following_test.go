package etcdsource

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/registry"
)

const leader = "/service/pg/leader"

// electing is a service on port 1 whose endpoints a key elects.
func electing(key string) string {
	return fmt.Sprintf(`{"kind":"Service","apiVersion":"v1","metadata":{"annotations":{"kube-proxy/holder-key":%q}},"spec":{"ports":[{"port":1}]}}`, key)
}

// called is endpoints 10.0.0.1:1, 10.0.0.2:1 and so on, which have these names.
func called(names ...string) string {
	var annotation, addresses []string
	for i, name := range names {
		annotation = append(annotation, fmt.Sprintf("10.0.0.%d=%s", i+1, name))
		addresses = append(addresses, fmt.Sprintf(`{"ip":"10.0.0.%d"}`, i+1))
	}
	return fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1","metadata":{"annotations":{"kube-proxy/names":%q}},"subsets":[{"addresses":[%s],"ports":[{"port":1}]}]}`,
		strings.Join(annotation, ","), strings.Join(addresses, ","))
}

// mayFollow is quick with keys that records may name.
func mayFollow(url string) Config {
	cfg := quick(url)
	cfg.HolderKeys = []string{"/service/"}
	return cfg
}

func TestAKeyElectsTheEndpointsOfAService(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("pg"), electing(leader), ends("pg"), called("m1", "m2", "m3"), spec("web"), port(2), ends("web"), addrs("10.0.1.1:1"), leader, "m2")
	f := follow(t, mayFollow(etcd.URL()))
	f.await(t, "pg:1 web:2 | pg=10.0.0.2:1 web=10.0.1.1:1")
	if first := f.past()[0]; len(first.Endpoints) != 2 || first.Endpoints[0].Value.Of("").Len() != 1 || first.Endpoints[1].Value.Of("").Len() != 1 {
		t.Errorf("the first state is %v; want it to have elected already", first.Endpoints)
	}
	for _, step := range []struct{ value, want string }{
		{"m3", "10.0.0.3:1"}, {"m1\n", "10.0.0.1:1"}, {"m2", "10.0.0.2:1"}, {"nobody", ""}, {"m1", "10.0.0.1:1"}, {"", ""}, {"m3", "10.0.0.3:1"}, {strings.Repeat("m", 1<<16), ""}, {"m1", "10.0.0.1:1"},
	} {
		put(t, c, leader, step.value)
		f.await(t, "pg:1 web:2 | pg="+step.want+" web=10.0.1.1:1")
	}
	del(t, c, leader)
	f.await(t, "pg:1 web:2 | pg= web=10.0.1.1:1")
	put(t, c, leader, "m1", ends("pg"), called("m3", "m2", "m1"))
	f.await(t, "pg:1 web:2 | pg=10.0.0.3:1 web=10.0.1.1:1")
	if st := f.resync(t); st.Divergences != 0 {
		t.Errorf("%d divergences; want none", st.Divergences)
	}

	// Another key, another service of the same key, and none.
	put(t, c, "/service/other", "m2", spec("pg"), electing("/service/other"))
	f.await(t, "pg:1 web:2 | pg=10.0.0.2:1 web=10.0.1.1:1")
	put(t, c, "/service/other", "m3", spec("web"), electing("/service/other"), ends("web"), called("m1", "m3"))
	f.await(t, "pg:1 web:1 | pg=10.0.0.1:1 web=10.0.0.2:1")
	for _, u := range f.past() {
		for _, e := range u.Endpoints {
			if e.Name.Name == "web" && e.Value.Of("").Len() > 1 {
				t.Errorf("at revision %d all endpoints of web were in force; want those before, until its key had been read", u.Revision)
			}
		}
	}
	put(t, c, spec("pg"), port(1))
	f.await(t, "pg:1 web:1 | pg=10.0.0.1:1,10.0.0.2:1,10.0.0.3:1 web=10.0.0.2:1")
	del(t, c, spec("web"), ends("web"))
	f.await(t, "pg:1 | pg=10.0.0.1:1,10.0.0.2:1,10.0.0.3:1")
}

// TestKeyAndRecordsAreInForceAsOfOneRevision: each transaction gives the one endpoint another name and has the key elect that, so an update that has the
// one without the other elects nobody.
func TestKeyAndRecordsAreInForceAsOfOneRevision(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	change := func(i int) (revision int64) {
		name := fmt.Sprintf("m%d", i)
		ops := []clientv3.Op{clientv3.OpPut(leader, name), clientv3.OpPut(ends("pg"), called(name)), clientv3.OpPut(spec(fmt.Sprint("other", i%7)), port(10+i%7))}
		resp, err := c.Txn(t.Context()).Then(ops...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return resp.Header.Revision
	}
	put(t, c, spec("pg"), electing(leader))
	change(0)
	f := follow(t, mayFollow(etcd.URL()))
	f.awaitRevision(t, 1)
	var last int64
	for i := range 300 {
		if last = change(i); i%50 == 0 {
			f.source.Resync()
		}
	}
	f.awaitRevision(t, last)
	for _, u := range f.past() {
		for _, e := range u.Endpoints {
			if e.Value.Of("").Len() != 1 {
				t.Fatalf("at revision %d the key elects %v", u.Revision, e.Value.Of(""))
			}
		}
	}
	if n := len(f.past()); n < 20 {
		t.Errorf("%d updates show little", n)
	}
}

func TestAKeyThatChangesWhileEtcdIsAwayIsFoundOut(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("pg"), electing(leader), ends("pg"), called("m1", "m2"), leader, "m1")
	link := etcdtest.NewLink(t, strings.TrimPrefix(etcd.URL(), "http://"))
	f := follow(t, mayFollow("http://"+link.Addr()))
	f.await(t, "pg:1 | pg=10.0.0.1:1")
	link.Down()
	f.awaitStatus(t, "not connected", func(st config.Status) bool { return !st.Connected })
	put(t, c, leader, "m2")
	link.Up()
	f.await(t, "pg:1 | pg=10.0.0.2:1")
	link.Cut()
	put(t, c, leader, "m1")
	f.await(t, "pg:1 | pg=10.0.0.1:1")
	for _, u := range f.past() {
		for _, e := range u.Endpoints {
			if e.Value.Of("").Len() != 1 {
				t.Errorf("at revision %d the key elects %v", u.Revision, e.Value.Of(""))
			}
		}
	}
}

func TestAKeyThatMayNotBeWatchedHurtsNobodyElse(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := withAuth(t, etcd)
	put(t, c, spec("pg"), electing(leader), ends("pg"), called("m1"), leader, "m1", spec("web"), port(2), ends("web"), addrs("10.0.1.1:1"))
	log := logSince(t)
	f := follow(t, asProxy(mayFollow(etcd.URL())))
	f.await(t, "pg:1 web:2 | web=10.0.1.1:1")
	put(t, c, ends("web"), addrs("10.0.1.2:1"))
	f.await(t, "pg:1 web:2 | web=10.0.1.2:1")
	if lines := log(); strings.Count(lines, `key "/service/pg/leader" cannot be followed, so the endpoints that it elected last stay (none if it was never read): etcd says "`) != 1 || !strings.Contains(lines, "permission denied") {
		t.Errorf("the log says:\n%s", lines)
	}

	// Once it may be, the next resync finds out.
	if _, err := c.RoleGrantPermission(t.Context(), "reader", leader, "", clientv3.PermissionType(clientv3.PermRead)); err != nil {
		t.Fatal(err)
	}
	f.resync(t)
	f.await(t, "pg:1 web:2 | pg=10.0.0.1:1 web=10.0.1.2:1")
}

// Etcd checks the permission when a watch is created, so the watch stands while a list is refused. And a key may have more below it than a list takes.
func TestAKeyThatCanBeReadNoMoreHurtsNobodyElse(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := withAuth(t, etcd)
	reads := clientv3.PermissionType(clientv3.PermRead)
	below := clientv3.GetPrefixRangeEnd(cluster)
	grant := func() {
		t.Helper()
		if _, err := c.RoleGrantPermission(t.Context(), "reader", cluster, below, reads); err != nil {
			t.Fatal(err)
		}
	}
	grant()
	put(t, c, spec("pg"), ofCluster(1, "primary", ""), cluster+"leader", "m1", cluster+"members/m1", aMember(1, "master", "running", 0), spec("web"), port(2), ends("web"), addrs("10.0.1.1:1"))
	f := follow(t, asProxy(mayFollowPatroni(etcd.URL())))
	f.await(t, "pg:1 web:2 | pg=10.0.0.1:5432 web=10.0.1.1:1")
	for _, broken := range []struct {
		why       string
		line      bool // or it is held back: there was one of this key
		now, then func()
	}{
		{"permission denied", true, func() {
			if _, err := c.RoleRevokePermission(t.Context(), "reader", cluster, below); err != nil {
				t.Fatal(err)
			}
		}, grant},
		{"more than 2000 keys are below it", false, func() {
			for i := range 20 {
				var ops []clientv3.Op
				for j := range 100 {
					ops = append(ops, clientv3.OpPut(fmt.Sprint(cluster, "zzz/", i, "/", j), ""))
				}
				resp, err := c.Txn(t.Context()).Then(ops...).Commit()
				if err != nil {
					t.Fatal(err)
				}
				f.awaitRevision(t, resp.Header.Revision) // or a list need not have them
			}
		}, func() {
			if _, err := c.Delete(t.Context(), cluster+"zzz/", clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		log := logSince(t)
		broken.now()
		if st := f.resync(t); st.Sessions != 1 || !st.Connected {
			t.Errorf("%s: %+v; want the first session still", broken.why, st)
		}
		put(t, c, cluster+"members/m1", aMember(2, "master", "running", 0), ends("web"), addrs("10.0.1.2:1"))
		f.await(t, "pg:1 web:2 | pg=10.0.0.1:5432 web=10.0.1.2:1")
		if lines := log(); broken.line && strings.Count(lines, `key "/service/pg/" cannot be followed, so the endpoints that it elected last stay (none if it was never read): it cannot be read: "etcdserver: `+broken.why) != 1 {
			t.Errorf("%s: the log says:\n%s", broken.why, lines)
		}
		broken.then()
		f.resync(t)
		f.await(t, "pg:1 web:2 | pg=10.0.0.2:5432 web=10.0.1.2:1")
		put(t, c, cluster+"members/m1", aMember(1, "master", "running", 0), ends("web"), addrs("10.0.1.1:1"))
		f.await(t, "pg:1 web:2 | pg=10.0.0.1:5432 web=10.0.1.1:1")
		if n := f.source.Status().Divergences; n != 0 {
			t.Errorf("%s: %d divergences; want none, as there was no watch that could have told", broken.why, n)
		}
	}
}

// The id 0 is that of the watch of the registry.
func TestAKeyThatIsFollowedNoMoreEndsNoWatchWhenAListCannotReadIt(t *testing.T) {
	x, _ := followingSession(t)
	clear(x.watches)
	x.unread(map[string]error{leader: errManyBelow})
	if n := len(x.watch.requests); n != 0 || x.refused[leader] {
		t.Errorf("%d requests, refused: %v; want nothing", n, x.refused)
	}
}

func TestThereMayBeMoreBelowAKeyThanAMessageHolds(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("pg"), ofCluster(1, "primary", ""), cluster+"leader", "m1", cluster+"members/m1", aMember(1, "master", "running", 0))
	large := strings.Repeat("x", 1<<20)
	for i := range maxMessage>>20 + 1 {
		put(t, c, fmt.Sprint(cluster, "history", i), large)
	}
	f := follow(t, mayFollowPatroni(etcd.URL()))
	f.await(t, "pg:1 | pg=10.0.0.1:5432")
	if st := f.resync(t); st.Divergences != 0 {
		t.Errorf("%d divergences; want none", st.Divergences)
	}
}

func TestARecordCannotHaveAnyKeyFollowed(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), electing("/secrets/password"), spec("b"), electing(registry.Prefix+"specs/a"), spec("c"), electing("service"), spec("web"), port(2))
	f := follow(t, mayFollow(etcd.URL()))
	f.await(t, "web:2 | ")
	for i, want := range []string{"is not below a prefix of -holder_keys", "is no key outside of /registry/services/", "begins with a slash"} {
		if is := f.source.Status().Rejections[i].Reason; !strings.Contains(is, "annotation kube-proxy/holder-key: ") || !strings.Contains(is, want) {
			t.Errorf("rejected for %q; want %q", is, want)
		}
	}
	cfg := quick(etcd.URL())
	cfg.HolderKeys = []string{"service/"}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), `prefix "service/" of holder keys`) {
		t.Errorf("error %v; want one about the prefix", err)
	}
}

func TestKeysAreNotFollowedThroughAGRPCProxy(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("pg"), electing(leader), ends("pg"), called("m1"), leader, "m1", spec("web"), port(2), ends("web"), addrs("10.0.1.1:1"))
	log := logSince(t)
	f := follow(t, mayFollow(etcdtest.StartGRPCProxy(t, etcd)))
	f.await(t, "pg:1 web:2 | web=10.0.1.1:1")
	if lines := log(); !strings.Contains(lines, `key "/service/pg/leader" cannot be followed, so the endpoints that it elected last stay (none if it was never read): an etcd before 3.4 or etcd's grpc-proxy answers`) {
		t.Errorf("the log says:\n%s", lines)
	}
}

// The members that a source may ask can be of two clusters, by mistake.
func TestTheKeysOfAListAreOfItsCluster(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("pg"), electing(leader), ends("pg"), called("m1", "m2"), leader, "m1")
	m := newMiddleman(t, c)
	f := follow(t, mayFollow(m.url))
	f.await(t, "pg:1 | pg=10.0.0.1:1")
	lied := make(chan struct{}, 1)
	m.hook(func(m *middleman) {
		m.onRange = func(req *etcdserverpb.RangeRequest, ask answerer) (*etcdserverpb.RangeResponse, error) {
			resp, err := ask(req)
			if err == nil && string(req.Key) == leader {
				resp.Header.ClusterId++
				resp.Kvs = nil
				wake(lied)
			}
			return resp, err
		}
	})
	f.source.Resync()
	<-lied
	m.hook(func(m *middleman) { m.onRange = nil })
	if st := f.resync(t); st.Resyncs != 1 || st.Divergences != 0 {
		t.Errorf("%d resyncs, %d divergences; want one, as the other failed, and none", st.Resyncs, st.Divergences)
	}
	put(t, c, leader, "m2")
	f.await(t, "pg:1 | pg=10.0.0.2:1")
	for _, u := range f.past() {
		for _, e := range u.Endpoints {
			if e.Value.Of("").Len() != 1 {
				t.Errorf("at revision %d the key elects %v", u.Revision, e.Value.Of(""))
			}
		}
	}
}

func TestAKeyIsAskedForAgainWhenRequestsHaveRoom(t *testing.T) {
	x, _ := followingSession(t)
	clear(x.watches)
	x.watch.requests = make(chan *etcdserverpb.WatchRequest, 1)
	x.watch.end(firstID)
	if x.follow() || x.pendingKey != "" || x.refused[leader] {
		t.Errorf("the watch that is asked for is of %q, refused: %v; want none, since the requests have no room", x.pendingKey, x.refused)
	}
	asks(t, x)
	if err := x.period(); err != nil || x.pendingKey != leader {
		t.Errorf("error %v, a watch is asked for of %q", err, x.pendingKey)
	}
}

// A key that no list has told of elects nobody: what was in force before the service named it says nothing of the key.
func TestAServiceWhoseKeyWasNeverReadHasNoEndpoints(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := withAuth(t, etcd)
	put(t, c, spec("pg"), port(1), ends("pg"), called("m1", "m2"), leader, "m1")
	f := follow(t, asProxy(mayFollow(etcd.URL())))
	f.await(t, "pg:1 | pg=10.0.0.1:1,10.0.0.2:1")
	put(t, c, spec("pg"), electing(leader))
	f.await(t, "pg:1 | pg=")
	f.awaitRevision(t, put(t, c, ends("pg"), called("m1")))
	if got := f.text(); got != "pg:1 | pg=" {
		t.Errorf("%s; want no endpoint", got)
	}

	// Once it has been read it elects, and what it elected last stays when it can be read no more.
	if _, err := c.RoleGrantPermission(t.Context(), "reader", leader, "", clientv3.PermissionType(clientv3.PermRead)); err != nil {
		t.Fatal(err)
	}
	f.resync(t)
	f.await(t, "pg:1 | pg=10.0.0.1:1")
	if _, err := c.RoleRevokePermission(t.Context(), "reader", leader, ""); err != nil {
		t.Fatal(err)
	}
	f.resync(t)
	f.awaitRevision(t, put(t, c, ends("pg"), called("m2", "m1")))
	if got := f.text(); got != "pg:1 | pg=10.0.0.2:1" {
		t.Errorf("%s; want the endpoint that is called m1", got)
	}
}

func TestAStreamWhoseTokenIsStaleEndsWhenAKeyIsToBeWatched(t *testing.T) {
	for _, test := range []struct {
		reason, user string
		stood        time.Duration
		ends, quiet  bool
	}{
		{rpctypes.ErrGRPCInvalidAuthToken.Error(), "proxy", maxBackoff, true, true},
		{rpctypes.ErrGRPCAuthOldRevision.Error(), "proxy", maxBackoff, true, true},
		{rpctypes.ErrGRPCUserEmpty.Error(), "proxy", maxBackoff, true, true}, // authentication was turned on
		{rpctypes.ErrGRPCUserEmpty.Error(), "", maxBackoff, false, false},
		{rpctypes.ErrGRPCPermissionDenied.Error(), "proxy", maxBackoff, false, false},
		{rpctypes.ErrGRPCInvalidAuthToken.Error(), "proxy", 0, true, false}, // or an etcd that refuses each token would be silence for ever
	} {
		x, _ := followingSession(t)
		x.cfg.Username, x.stood = test.user, time.Now().Add(-test.stood)
		clear(x.watches)
		if !x.follow() {
			t.Fatal("no watch is asked for")
		}
		err := x.receive(delivery{at: time.Now(), notices: []notice{{created: true, id: -1, refused: test.reason}}})
		if (err != nil) != test.ends || x.refused[leader] == test.ends {
			t.Errorf("%+v: error %v, refused %v", test, err, x.refused)
		}
		want := Refused
		if test.quiet {
			want = Cancelled
		}
		if test.ends && (causeOf(err) != want || errors.Is(err, errOldToken) != test.quiet || !strings.Contains(err.Error(), leader)) {
			t.Errorf("%+v: cause %v of error %v", test, causeOf(err), err)
		}
	}
}

// Where a member is restored from a snapshot, etcd ends those watches that have been told of nothing since it compacted, which are those of quiet keys.
func TestAKeyWhoseWatchIsCompactedIsListedAtOnce(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("pg"), electing(leader), ends("pg"), called("m1", "m2", "m3"), leader, "m1")
	m := newMiddleman(t, c)
	cfg := mayFollow(m.url)
	cfg.ProbePeriod = cfg.SyncPeriod // so that nothing comes of the end of a period
	f := follow(t, cfg)
	f.await(t, "pg:1 | pg=10.0.0.1:1")
	compacted := false
	m.hook(func(m *middleman) {
		m.onEvents = func(resp *etcdserverpb.WatchResponse) bool {
			if resp.WatchId >= firstID && len(resp.Events) > 0 && !compacted {
				compacted, resp.Canceled, resp.CompactRevision, resp.Events = true, true, resp.Header.Revision, nil
			}
			return true
		}
	})
	put(t, c, leader, "m2")
	f.await(t, "pg:1 | pg=10.0.0.2:1")
	put(t, c, leader, "m3") // the new watch tells of this, and etcd answers how far it has told, since the old one is ended
	f.await(t, "pg:1 | pg=10.0.0.3:1")
	if st := f.source.Status(); st.Sessions != 1 || st.Divergences != 0 {
		t.Errorf("%d sessions, %d divergences; want the first session still, and none", st.Sessions, st.Divergences)
	}
}

// asks takes the oldest request that waits to be sent.
func asks(t *testing.T, x *session) *etcdserverpb.WatchRequest {
	t.Helper()
	select {
	case req := <-x.watch.requests:
		return req
	default:
		t.Fatal("etcd is asked for nothing")
		return nil
	}
}

func TestAKeyWhoseWatchEtcdEndsAgainBeforeItsListWaitsForTheNextResync(t *testing.T) {
	x, out := followingSession(t)
	hears := func(n notice) {
		t.Helper()
		if err := x.receive(delivery{at: time.Now(), notices: []notice{n}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.receive(changed(leader, "m1", 7)); err != nil {
		t.Fatal(err)
	}
	hears(notice{answer: true, revision: 7})
	asks(t, x) // for progress
	if u := <-out; u.Revision != 7 {
		t.Errorf("update of revision %d; want 7", u.Revision)
	}
	ended := func() {
		t.Helper()
		id := x.watches[leader]
		hears(notice{ended: true, id: id, refused: "why"})
		if end := asks(t, x).GetCancelRequest(); end == nil || end.WatchId != id {
			t.Errorf("etcd is asked %v; want it to end the watch %d, which it else counts as one that is behind", end, id)
		}
	}
	begun := func() {
		t.Helper()
		if req := asks(t, x).GetCreateRequest(); x.pendingKey != leader || req == nil || string(req.Key) != leader {
			t.Fatalf("the watch that is asked for is of %q: %v", x.pendingKey, req)
		}
		hears(notice{created: true, id: firstID + x.lastID})
		if !x.mustList || x.watches[leader] != firstID+x.lastID {
			t.Errorf("watches %v", x.watches)
		}
	}
	list := func(revision int64) (l listing) {
		l.revision = revision
		l.list.Add(theirs("m1", "m2"))
		return l
	}
	ended()
	begun()
	ended()
	if len(x.watches) != 0 || x.pendingKey != "" || !x.refused[leader] {
		t.Errorf("watches %v, one of %q is asked for; want none", x.watches, x.pendingKey)
	}

	if err := x.use(list(9)); err != nil { // the list that the new watch asked for
		t.Fatal(err)
	}
	if x.follow() {
		t.Error("the watch is asked for again before the next resync")
	}
	x.startResync()
	<-x.lists.answers
	x.lists.busy = false
	if err := x.use(list(10)); err != nil {
		t.Fatal(err)
	}
	begun()
	x.pendingKey = leader
	if err := x.unproven(); err == nil || !strings.Contains(err.Error(), "no watch of key \"/service/pg/leader\" was created") {
		t.Errorf("a watch that is never created: %v", err)
	}
}

func TestAfterAResyncThatFailedTheNextOneIsAsNewAsTheWatchOfAKey(t *testing.T) {
	x, _ := followingSession(t)
	x.heard, x.mustList = 7, true
	for range 2 { // etcd does not answer the first of them
		x.startResync()
		if x.listing.revision != 0 {
			t.Fatalf("a list of revision %d; want the newest: the watch of the key may have begun after it", x.listing.revision)
		}
		if err := x.listed(<-x.lists.answers); err != nil {
			t.Fatal(err)
		}
	}
	x.startResync()
	<-x.lists.answers
	if err := x.use(listed(9)); err != nil {
		t.Fatal(err)
	}
	if x.startResync(); x.listing.revision != 9 {
		t.Errorf("a list of revision %d; want 9, which the watch has come to", x.listing.revision)
	}
	<-x.lists.answers
}
