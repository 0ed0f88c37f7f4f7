package etcdsource

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource/etcdtest"
)

const cluster = "/service/pg/"

// ofCluster is a service on a port whose endpoints are members of the cluster pg. more is text of annotations.
func ofCluster(port int, role, more string) string {
	return fmt.Sprintf(`{"kind":"Service","apiVersion":"v1","metadata":{"annotations":{"kube-proxy/patroni":"pg","kube-proxy/patroni-role":%q%s}},"spec":{"ports":[{"port":%d}]}}`, role, more, port)
}

// aMember is the record of a member with address 10.0.0.n:5432.
func aMember(n int, role, state string, position int64) string {
	return fmt.Sprintf(`{"conn_url":"postgres://10.0.0.%d:5432/postgres","state":%q,"role":%q,"xlog_location":%d}`, n, state, role, position)
}

// mayFollowPatroni is quick with clusters that records may name.
func mayFollowPatroni(url string) Config {
	cfg := quick(url)
	cfg.Patroni = "/service/"
	return cfg
}

func TestTheMembersOfAClusterAreTheEndpointsOfServices(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("pg"), ofCluster(1, "primary", ""), spec("ro"), ofCluster(2, "replica", `,"kube-proxy/patroni-lag":"1kB"`),
		cluster+"leader", "m1", cluster+"status", `{"optime":5000}`, cluster+"history", `[`,
		cluster+"members/m1", aMember(1, "master", "running", 0), cluster+"members/m2", aMember(2, "replica", "running", 5000), cluster+"members/m3", aMember(3, "replica", "running", 4000))
	log := logSince(t)
	f := follow(t, mayFollowPatroni(etcd.URL()))
	f.await(t, "pg:1 ro:2 | pg=10.0.0.1:5432 ro=10.0.0.2:5432,10.0.0.3:5432")
	if n := len(f.past()[0].Endpoints); n != 2 {
		t.Errorf("the first state has endpoints of %d services; want 2", n)
	}
	for _, step := range []struct {
		does   string
		change []string // a value of "" deletes
		want   string
	}{
		{"a switchover begins", []string{"leader", ""}, "pg= ro=10.0.0.2:5432,10.0.0.3:5432"},
		{"it ends", []string{"leader", "m2"}, "pg=10.0.0.2:5432 ro=10.0.0.3:5432"},
		{"the role comes late", []string{"members/m1", aMember(1, "replica", "running", 5000), "members/m2", aMember(2, "master", "running", 0)}, "pg=10.0.0.2:5432 ro=10.0.0.1:5432,10.0.0.3:5432"},
		{"the key goes back without a deletion", []string{"leader", "m1"}, "pg=10.0.0.1:5432 ro=10.0.0.3:5432"},
		{"a second name for one address", []string{"members/m4", aMember(3, "replica", "running", 4000)}, "pg=10.0.0.1:5432 ro=10.0.0.3:5432"},
		{"one of them goes", []string{"members/m4", ""}, "pg=10.0.0.1:5432 ro=10.0.0.3:5432"},
		{"the primary writes", []string{"status", `{"optime":5025}`}, "pg=10.0.0.1:5432 ro=10.0.0.3:5432"},
		{"a replica lags", []string{"status", `{"optime":5026}`}, "pg=10.0.0.1:5432 ro=10.0.0.1:5432"},
		{"it is there again", []string{"members/m3", aMember(3, "replica", "running", 5025)}, "pg=10.0.0.1:5432 ro=10.0.0.3:5432"},
		{"a value cannot be read", []string{"members/m1", `{`}, "pg=10.0.0.1:5432 ro=10.0.0.3:5432"},
		{"it is mended", []string{"members/m1", aMember(9, "master", "running", 0)}, "pg=10.0.0.9:5432 ro=10.0.0.3:5432"},
		{"the key of the member goes", []string{"members/m1", ""}, "pg= ro=10.0.0.3:5432"},
		{"a leader nobody knows", []string{"leader", "m8"}, "pg= ro=10.0.0.3:5432"},
		{"its member comes later", []string{"members/m8", aMember(8, "promoted", "starting", 0)}, "pg=10.0.0.8:5432 ro=10.0.0.3:5432"},
		{"the last replica goes", []string{"members/m3", "", "members/m2", ""}, "pg=10.0.0.8:5432 ro=10.0.0.8:5432"},
		{"a standby cluster", []string{"members/m8", aMember(8, "standby_leader", "running", 5025)}, "pg= ro=10.0.0.8:5432"},
		{"the cluster is paused", []string{"config", `{"ttl":30,"pause":true}`}, "pg= ro=10.0.0.8:5432"},
	} {
		var ops []clientv3.Op
		for kv := range slices.Chunk(step.change, 2) {
			if kv[1] == "" {
				ops = append(ops, clientv3.OpDelete(cluster+kv[0]))
			} else {
				ops = append(ops, clientv3.OpPut(cluster+kv[0], kv[1]))
			}
		}
		resp, err := c.Txn(t.Context()).Then(ops...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		f.awaitRevision(t, resp.Header.Revision)
		if got := f.text(); got != "pg:1 ro:2 | "+step.want {
			t.Fatalf("%s: %s; want %s", step.does, got, step.want)
		}
	}
	if st := f.resync(t); st.Divergences != 0 {
		t.Errorf("%d divergences; want none", st.Divergences)
	}
	st := f.source.Status()
	if len(st.Elections) != 1 || st.Elections[0].Key != cluster+"leader" || st.Elections[0].Holder != "m8" || !st.Elections[0].Paused || len(st.Elections[0].Changes) != 5 {
		t.Errorf("the status has the elections %+v", st.Elections)
	}
	for _, want := range []string{`key "/service/pg/members/m1" cannot be used: no JSON object of a member, at revision`, `key "/service/pg/members/m1" can be used again`,
		`key "/service/pg/leader" elects "m2" at revision`, "the primary serves, for no replica of"} {
		if lines := log(); strings.Count(lines, want) != 1 {
			t.Errorf("the log has %q %d times; want it once:\n%s", want, strings.Count(lines, want), lines)
		}
	}
	put(t, c, spec("ro"), ofCluster(2, "replica", `,"kube-proxy/patroni-fallback":"none"`), cluster+"members/m8", aMember(8, "master", "running", 0))
	f.await(t, "pg:1 ro:2 | pg=10.0.0.8:5432 ro=")
	put(t, c, spec("ro"), port(2))
	f.await(t, "pg:1 ro:2 | pg=10.0.0.8:5432")
}

func TestAClusterWhoseKeysAreGoneAfterARestoreHasNoPrimary(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("pg"), ofCluster(1, "primary", ""), cluster+"leader", "m1", cluster+"members/m1", aMember(1, "master", "running", 0))
	link := etcdtest.NewLink(t, strings.TrimPrefix(etcd.URL(), "http://"))
	f := follow(t, mayFollowPatroni("http://"+link.Addr()))
	f.await(t, "pg:1 | pg=10.0.0.1:5432")
	link.Down()
	f.awaitStatus(t, "not connected", func(st config.Status) bool { return !st.Connected })
	del(t, c, cluster+"leader", cluster+"members/m1")
	if got := f.text(); got != "pg:1 | pg=10.0.0.1:5432" {
		t.Errorf("while etcd is away: %s; want what was in force", got)
	}
	link.Up()
	f.await(t, "pg:1 | pg=")
}

func TestARecordNamesAClusterOnlyAsTheNodeAllows(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("pg"), ofCluster(1, "primary", ""), spec("web"), port(2))
	f := follow(t, quick(etcd.URL()))
	f.await(t, "web:2 | ")
	if why := f.source.Status().Rejections[0].Reason; !strings.Contains(why, "annotation kube-proxy/patroni: -patroni says where clusters have their keys, and it is empty") {
		t.Errorf("rejected for %q", why)
	}
	for _, prefix := range []string{"service/", "/service", "/registry/services/specs/"} {
		cfg := quick(etcd.URL())
		cfg.Patroni = prefix
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("prefix %q of Patroni's keys", prefix)) {
			t.Errorf("prefix %q: error %v; want one about the prefix", prefix, err)
		}
	}
}

// A ledger says by the history of etcd itself who may serve: the simple words of the manual, and nothing of package patroni.
type ledger struct {
	values map[string]string         // of keys that exist
	good   map[string]map[string]any // of members: the last value that could be read
	since  map[string]int64          // revisions of status and of those values
	before float64                   // what status said before; 0: nothing
	paused bool
}

// unsaid is the text of a revision at which a value cannot be read: what counts then is the last good one that the source was given.
const unsaid = "?"

func (l *ledger) hasBad() bool {
	for key, value := range l.values {
		if strings.HasPrefix(key, cluster+"members/") && (!json.Valid([]byte(value)) || !strings.Contains(value, "postgres")) {
			return true
		}
	}
	return false
}

func (l *ledger) change(ev *clientv3.Event) {
	key, value := string(ev.Kv.Key), string(ev.Kv.Value)
	if ev.Type == clientv3.EventTypeDelete {
		delete(l.values, key)
		delete(l.good, key)
		l.paused = l.paused && key != cluster+"config"
		return
	}
	if key == cluster+"status" {
		l.before = l.optime()
		l.since[key] = ev.Kv.ModRevision
	}
	l.values[key] = value
	if key == cluster+"config" {
		l.paused = strings.Contains(value, `"pause":true`)
	}
	var m map[string]any
	if json.Unmarshal(ev.Kv.Value, &m) == nil && m["conn_url"] != nil {
		l.good[key], l.since[key] = m, ev.Kv.ModRevision
	}
}

func (l *ledger) optime() float64 {
	var m map[string]float64
	_ = json.Unmarshal([]byte(l.values[cluster+"status"]), &m)
	return m["optime"]
}

// texts has what may be in force: first what the history says, and then what it says for one who has not seen the status before, as a list may leave it out.
func (l *ledger) texts() []string { return []string{l.text(l.before), l.text(0)} }

func (l *ledger) text(before float64) string {
	leader := l.good[cluster+"members/"+l.values[cluster+"leader"]]
	var primary, replicas []string
	if leader != nil && leader["role"] != "standby_leader" {
		primary = []string{addressOf(leader)}
	}
	optime := l.optime()
	for _, key := range slices.Sorted(maps.Keys(l.good)) {
		m := l.good[key]
		is := m["role"] == "replica" && key != cluster+"members/"+l.values[cluster+"leader"] || m["role"] == "standby_leader"
		at, to := m["xlog_location"].(float64), optime
		if l.since[key] < l.since[cluster+"status"] && before > 0 {
			to = min(before, optime)
		}
		if is && m["state"] == "running" && optime > 0 && at > 0 && to-at <= 1024 && !slices.Contains(replicas, addressOf(m)) { // two members may name one address
			replicas = append(replicas, addressOf(m))
		}
	}
	if len(replicas) == 0 {
		replicas = primary
	}
	return "pg=" + strings.Join(primary, ",") + " ro=" + strings.Join(replicas, ",")
}

func addressOf(m map[string]any) string {
	return strings.TrimSuffix(strings.TrimPrefix(m["conn_url"].(string), "postgres://"), "/postgres")
}

// read has the ledger follow the cluster through what etcd has kept of its history, and gives what may be in force at each revision.
func (l *ledger) read(t *testing.T, c *clientv3.Client, from, to int64) map[int64][]string {
	t.Helper()
	l.before, l.values, l.good, l.since, l.paused = 0, make(map[string]string), make(map[string]map[string]any), make(map[string]int64), false
	want := make(map[int64][]string)
	for resp := range c.Watch(t.Context(), cluster, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := resp.Err(); err != nil {
			t.Fatal(err)
		}
		for _, ev := range resp.Events {
			l.change(ev)
			if want[ev.Kv.ModRevision] = l.texts(); l.hasBad() {
				want[ev.Kv.ModRevision] = []string{unsaid}
			}
		}
		if want[to] != nil {
			break
		}
	}
	return want
}

// TestAtEachRevisionThoseMembersServeThatTheKeysName: whatever happens to the keys, by a writer or by the end of a lease, to our connection, and to etcd, which
// is restored once from older data, each update has those endpoints that the history of etcd gives at its revision.
func TestAtEachRevisionThoseMembersServeThatTheKeysName(t *testing.T) {
	etcd := etcdtest.StartProcess(t, "--heartbeat-interval=10", "--election-timeout=50") // with the usual ones no lease is shorter than two seconds
	c := etcd.Client(t)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	member := func() string { return fmt.Sprintf("m%d", random.IntN(4)+1) }
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	var leases []clientv3.LeaseID // the last one is given to keys; the others end by themselves
	grant := func() {
		resp, err := c.Grant(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, resp.ID)
	}
	revoke := func() {
		if _, err := c.Revoke(t.Context(), leases[len(leases)-1]); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			t.Fatal(err)
		}
		leases = leases[:len(leases)-1]
	}
	leased := func(key, value string) clientv3.Op {
		if random.IntN(3) > 0 {
			return clientv3.OpPut(cluster+key, value)
		}
		return clientv3.OpPut(cluster+key, value, clientv3.WithLease(leases[len(leases)-1]))
	}
	op := func() clientv3.Op {
		switch random.IntN(11) {
		case 0, 1:
			return leased("leader", pick(member(), member(), "nobody"))
		case 2:
			return clientv3.OpDelete(cluster + "leader")
		case 3:
			return clientv3.OpPut(cluster+"status", fmt.Sprintf(`{"optime":%d}`, 5000+random.IntN(2000)))
		case 4:
			return leased("members/"+member(), pick(`{`, `{}`, ``, `{"conn_url":null}`))
		case 5:
			return clientv3.OpDelete(cluster + "members/" + member())
		case 6:
			if random.IntN(4) == 0 {
				return clientv3.OpDelete(cluster + "config")
			}
			return clientv3.OpPut(cluster+"config", fmt.Sprintf(`{"ttl":%d,"pause":%v}`, random.IntN(60), random.IntN(2) == 0))
		}
		m := member()
		return leased("members/"+m, aMember(int(m[1]-'0')+10+random.IntN(2), pick("replica", "replica", "master", "promoted", "demoted", "standby_leader"), pick("running", "running", "stopped"), int64(random.IntN(2)*(4500+random.IntN(2000)))))
	}
	start := put(t, c, spec("pg"), ofCluster(1, "primary", ""), spec("ro"), ofCluster(2, "replica", `,"kube-proxy/patroni-lag":"1kB"`), cluster+"leader", "m1")
	link := etcdtest.NewLink(t, etcd.Addr())
	f := follow(t, mayFollowPatroni("http://"+link.Addr()))
	f.awaitRevision(t, 1)
	var l ledger
	var eras []map[int64][]string // what may be in force, before the restore and after it
	var last int64
	var saved string
	// rest ends all leases, and awaits what was written last. From then on nothing changes.
	rest := func() {
		for len(leases) > 0 {
			revoke()
		}
		last = put(t, c, cluster+"leader", "m1")
		f.awaitRevision(t, last)
	}
	begin := func() {
		etcd.Start(t)
		c = etcd.Client(t)
		grant()
	}
	// keep notes what etcd has kept of this era.
	keep := func() {
		eras = append(eras, l.read(t, c, start, last))
		f.awaitStatus(t, fmt.Sprintf("paused: %v", l.paused), func(st config.Status) bool { return st.Elections[0].Paused == l.paused })
	}
	grant()
	for i := range 1500 {
		ops := make(map[string]clientv3.Op) // one for each key
		for range random.IntN(3) + 1 {
			o := op()
			ops[string(o.KeyBytes())] = o
		}
		var all []clientv3.Op
		for _, o := range ops {
			all = append(all, o)
		}
		switch resp, err := c.Txn(t.Context()).Then(all...).Commit(); {
		case errors.Is(err, rpctypes.ErrLeaseNotFound): // it has ended
			grant()
		case err != nil:
			t.Fatal(err)
		default:
			last = resp.Header.Revision
		}
		switch random.IntN(100) {
		case 0:
			link.Cut()
		case 1:
			f.source.Resync()
		case 2:
			f.awaitRevision(t, last)
		case 3, 4, 5:
			revoke()
			grant()
		case 6:
			grant()
		}
		switch i {
		case 499:
			rest()
			etcd.Kill()
			saved = t.TempDir()
			if err := os.CopyFS(saved, os.DirFS(etcd.DataDir())); err != nil {
				t.Fatal(err)
			}
			begin()
		case 999:
			rest()
			keep()
			etcd.Kill()
			etcd.SwapDataDir(saved)
			begin()
			before := last
			last = put(t, c, cluster+"leader", "m2")
			f.awaitThat(t, "the restored keys", func() bool { r := f.updates[len(f.updates)-1].Revision; return r >= last && r < before })
		}
	}
	rest()
	keep()

	compared, skipped, text, replay := 0, 0, "", follower{moved: make(chan struct{})}
	var at int64
	for _, u := range f.past() {
		if u.Revision < at && len(eras) > 1 {
			eras = eras[1:]
		}
		at = u.Revision
		replay.apply(u)
		_, text, _ = strings.Cut(replay.text(), " | ")
		is := eras[0][at]
		if is == nil || is[0] == unsaid {
			continue
		}
		if compared++; text == is[0] {
			continue
		}
		if skipped++; !slices.Contains(is, text) {
			t.Fatalf("at revision %d, %d restores to come: %s; want %s", at, len(eras)-1, text, is[0])
		}
	}
	if compared < 50 || skipped > compared/60 || len(eras) > 1 {
		t.Errorf("%d updates of %d were compared, and %d of them had not seen the status before; %d restores were not noticed", compared, len(f.past()), skipped, len(eras)-1)
	}
	t.Logf("%d updates of %d were compared, and %d of them had not seen the status before", compared, len(f.past()), skipped)
}
