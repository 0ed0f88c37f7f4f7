package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

var (
	patroniSteps = flag.Int("patroni.steps", 100, "transactions that the model test of a cluster makes with each engine")
	patroniSeed  = flag.Uint64("patroni.seed", 0, "seed of that test's choices; 0 takes a new one")
)

// scope is where the cluster of the model has its keys.
const scope = "/service/pg/"

// A reach is how far the node is.
type reach struct {
	era      int
	revision int64 // this is in force, or something newer
	turn     int   // of processes: odd while a take-over is under way
}

// A visit is one client, or a look at one that stayed.
type visit struct {
	role   string
	from   reach // before it came
	turn   int   // as in reach, when it was over
	over   time.Time
	server string // that the client was given
	err    error  // why it was not answered
	stayed bool   // it had been answered before
}

// A guest is a client that stays.
type guest struct {
	visit
	talk *proxytest.Talk
}

// A trial is the whole experiment. The node is one kube-proxy after another, and the judge compares at the end:
//
//	writer ──▶ etcd ◀── link ◀── node ◀── clients ──▶ visits ─┐
//	             └────────────── standings ───────────────────┴──▶ judge
type trial struct {
	*site
	random  *rand.Rand
	engine  string
	link    *etcdtest.Link
	servers map[string]string // names by addresses
	address []string
	api     string            // the REST API of all members
	ports   map[string]uint16 // of services, by their roles
	url     string            // of the node's pages
	args    []string          // of each process
	node    *programtest.Program
	next    *programtest.Program // its successor, while that takes over

	leases    []clientv3.LeaseID // the last one is given to new keys
	position  int                // of the primary; never the same
	wrote     int                // the era of what is written
	first     int64              // the revision at which the keys begin
	base      int64              // the first revision of which no standing is known yet
	last      int64              // the revision of what was written last
	moments   []moment
	standings []standing

	beat chan struct{} // a client was answered, or refused

	asking sync.Mutex // guards the fields below: who asks the node how far it is waits for others who do
	now    reach
	told   int64 // the revision that the node has told of last; 0: not all of that was in force
	bound  int64 // while a take-over is under way: the successor has read this at least; else 0

	mu     sync.Mutex // guards the fields below
	visits []visit
	guests []guest
}

// TestNoClientIsGivenToAMemberThatTheKeysForbid: whatever becomes of the keys, of etcd, of the way there and of the process, each client is given a server that
// the keys allowed at some revision between the one that was in force before it came, and the newest one when it was answered. Nobody is refused while
// the keys allowed the same servers all along, unless the primary has to confirm itself. Who stays is reset when the server is no more what the service asks for, and not before.
func TestNoClientIsGivenToAMemberThatTheKeysForbid(t *testing.T) {
	for _, engine := range []string{"portable", "epoll", "ring"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			newTrial(t, engine).run(t)
		})
	}
}

func newTrial(t *testing.T, engine string) *trial {
	seed := *patroniSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("this history again, as far as timing allows: -patroni.seed=%d -patroni.steps=%d", seed, *patroniSteps)
	etcd := etcdtest.StartProcess(t, "--heartbeat-interval=10", "--election-timeout=50") // leases last as long as ten elections, or a second
	tr := &trial{
		site:    &site{etcd: etcd, kv: etcd.Client(t), port: proxytest.FreePort(t)},
		random:  rand.New(rand.NewPCG(seed, 0)),
		engine:  engine,
		link:    etcdtest.NewLink(t, etcd.Addr()),
		servers: make(map[string]string),
		ports:   map[string]uint16{"primary": proxytest.FreePort(t), "patient": proxytest.FreePort(t), "cautious": proxytest.FreePort(t), "replica": proxytest.FreePort(t)},
		beat:    make(chan struct{}, 1),
	}
	for i := range 4 {
		name := fmt.Sprintf("server %d", i+1)
		addr := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat(name)).Addr.String()
		tr.servers[addr], tr.address = name, append(tr.address, addr)
	}
	tr.api = serveMoods(t)
	for name, of := range map[string]string{"primary": `"primary"`, "patient": `"primary","kube-proxy/wait":"200ms"`, "replica": `"replica"`,
		"cautious": `"primary","kube-proxy/patroni-unpromoted":"ask","kube-proxy/patroni-stale":"ask"`} {
		tr.put(t, registry.SpecsPrefix+name, fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":%q,"port":%d,"annotations":{"kube-proxy/patroni":"pg","kube-proxy/patroni-role":%s}}`, name, tr.ports[name], of))
	}
	metrics, url := operatorsURL(t)
	tr.url = url
	// The portable engine hands over listeners only, and what stays in the old process hears of no change: no client is to stay.
	tr.args = []string{"-etcd_servers=http://" + tr.link.Addr(), "-bind_address=127.0.0.1", "-v=1", "-patroni=/service/", "-engine=" + engine, "-takeover=" + takeoverPath(t),
		"-metrics_bind_address=" + metrics, "-drain_timeout=0", "-dial_timeout=15s", "-dial_total_timeout=15s"}
	return tr
}

// serveMoods serves a REST API of Patroni that is now a primary, now a replica, and now cannot say.
func serveMoods(t *testing.T) (url string) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch rand.IntN(8) {
		case 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 1, 2, 3:
			fmt.Fprint(w, `{"role":"primary"}`)
		default:
			fmt.Fprint(w, `{"role":"replica"}`)
		}
	}))
	t.Cleanup(api.Close)
	return api.URL
}

func (tr *trial) run(t *testing.T) {
	tr.grant(t)
	tr.commit(t, []clientv3.Op{tr.statusOp()})
	tr.first = tr.last
	for i := range 4 {
		tr.commit(t, []clientv3.Op{tr.record(i)})
	}
	tr.base = tr.last
	tr.node = start(t, nil, tr.args...)
	for role, port := range tr.ports {
		proxytest.Eventually(t, func() bool { return proxytest.Listens(proxytest.On(port)) }, "the port of the service %s opens", role)
	}
	tr.settle(t)
	leave := tr.attend(t)
	var saved string
	for i := range *patroniSteps {
		tr.write(t)
		if tr.random.IntN(2) == 0 { // or few clients would come while nothing changes
			tr.await(t, func(revision int64) bool { return revision >= tr.last })
			proxytest.Receive(t, tr.beat, "a client")
		}
		proxytest.Receive(t, tr.beat, "a client")
		switch tr.random.IntN(25) {
		case 0:
			tr.link.Cut()
		case 1, 2, 3:
			if tr.random.IntN(2) == 0 {
				tr.lead(t)
			}
			tr.settle(t)
			tr.look(t)
		}
		switch i * 100 / *patroniSteps {
		case 15, 45, 80:
			tr.takeOver(t)
		case 25, 55, 90:
			tr.tookOver(t)
		case 35:
			if saved == "" {
				saved = tr.save(t)
			}
		case 65:
			if tr.wrote == 0 {
				tr.restore(t, saved)
			}
		}
	}
	tr.lead(t)
	tr.settle(t)
	tr.look(t)
	leave()
	tr.settle(t)
	if now := tr.present(t).may["cautious"]; len(now) > 0 {
		proxytest.Eventually(t, func() bool { return slices.Contains(now, tr.ask(t, "cautious").server) }, "the primary, %v, has confirmed itself", now)
	}
	tr.remember(t)
	tr.judge(t)
}

// record is the op by which a member writes its record: mostly that of the server with its number.
func (tr *trial) record(member int) clientv3.Op {
	server := member
	if tr.random.IntN(5) == 0 {
		server = tr.random.IntN(len(tr.address))
	}
	return tr.under(scope+fmt.Sprintf("members/m%d", member+1), fmt.Sprintf(`{"conn_url":"postgres://%s/postgres","api_url":"%s/patroni","state":%q,"role":%q,"xlog_location":%d,"tags":{"noloadbalance":%v}}`,
		tr.address[server], tr.api, pick(tr.random, "running", "running", "running", "starting", "stopped"),
		pick(tr.random, "replica", "replica", "replica", "replica", "master", "promoted", "demoted", "uninitialized", "standby_leader"), tr.position, tr.random.IntN(8) == 0))
}

func pick(random *rand.Rand, of ...string) string { return of[random.IntN(len(of))] }

// under has a key live with the present lease, now and then.
func (tr *trial) under(key, value string) clientv3.Op {
	if tr.random.IntN(3) == 0 {
		return clientv3.OpPut(key, value, clientv3.WithLease(tr.leases[len(tr.leases)-1]))
	}
	return clientv3.OpPut(key, value)
}

// statusOp is the op that changes nothing for clients, and is always another value.
func (tr *trial) statusOp() clientv3.Op {
	tr.position++
	return clientv3.OpPut(scope+"status", fmt.Sprintf(`{"optime":%d}`, tr.position))
}

func (tr *trial) op() clientv3.Op {
	member := tr.random.IntN(4)
	switch tr.random.IntN(12) {
	case 0, 1, 2, 3:
		return tr.under(scope+"leader", fmt.Sprintf("m%d", member+1))
	case 4:
		return clientv3.OpDelete(scope + "leader")
	case 5:
		return clientv3.OpPut(scope+"leader", pick(tr.random, "", "nobody"))
	case 6:
		return clientv3.OpPut(scope+"config", fmt.Sprintf(`{"ttl":%d,"loop_wait":10,"pause":%v,"failsafe_mode":%v}`, 1+tr.random.IntN(30), tr.random.IntN(2) == 0, tr.random.IntN(2) == 0))
	case 7:
		return tr.statusOp()
	case 8:
		return clientv3.OpDelete(scope + fmt.Sprintf("members/m%d", member+1))
	}
	return tr.record(member)
}

// write makes one transaction, and now and then does something to the leases first: one is revoked, with all its keys at once, or left to end by itself.
func (tr *trial) write(t *testing.T) {
	t.Helper()
	switch tr.random.IntN(20) {
	case 0:
		tr.revoke(t)
		tr.grant(t)
	case 1:
		tr.grant(t)
	}
	ops := make(map[string]clientv3.Op) // one for each key
	for range 1 + tr.random.IntN(3) {
		op := tr.op()
		ops[string(op.KeyBytes())] = op
	}
	var all []clientv3.Op
	for _, key := range slices.Sorted(maps.Keys(ops)) {
		all = append(all, ops[key])
	}
	tr.commit(t, all)
}

// lead gives the cluster a primary whose keys have no lease: some histories have none for long, and who stays needs one.
func (tr *trial) lead(t *testing.T) {
	t.Helper()
	tr.commit(t, []clientv3.Op{clientv3.OpPut(scope+"leader", "m1"), clientv3.OpPut(scope+"members/m1",
		fmt.Sprintf(`{"conn_url":"postgres://%s/postgres","api_url":"%s/patroni","state":"running","role":"master","xlog_location":%d}`, tr.address[0], tr.api, tr.position))})
}

// commit has etcd do this at once. A lease may have ended that one of the ops names: then there is nothing to be done.
func (tr *trial) commit(t *testing.T, ops []clientv3.Op) {
	t.Helper()
	sent := time.Now()
	resp, err := tr.kv.Txn(t.Context()).Then(ops...).Commit()
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		tr.grant(t)
		return
	} else if err != nil {
		t.Fatal(err)
	}
	tr.last = resp.Header.Revision
	if slices.ContainsFunc(resp.Responses, func(r *etcdserverpb.ResponseOp) bool {
		return r.GetResponsePut() != nil || r.GetResponseDeleteRange().GetDeleted() > 0
	}) { // else it made no revision
		tr.moments = append(tr.moments, moment{sent, tr.wrote, tr.last})
	}
}

func (tr *trial) grant(t *testing.T) {
	t.Helper()
	resp, err := tr.kv.Grant(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	tr.leases = append(tr.leases, resp.ID)
}

// revoke ends the newest lease.
func (tr *trial) revoke(t *testing.T) {
	t.Helper()
	id := tr.leases[len(tr.leases)-1]
	tr.leases = tr.leases[:len(tr.leases)-1]
	if _, err := tr.kv.Revoke(t.Context(), id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Fatal(err)
	}
}

// settle ends all leases, so that nothing changes by itself, and waits until the node has in force what etcd says.
func (tr *trial) settle(t *testing.T) {
	t.Helper()
	for len(tr.leases) > 0 {
		tr.revoke(t)
	}
	tr.commit(t, []clientv3.Op{tr.statusOp()})
	tr.await(t, func(revision int64) bool { return revision == tr.last }) // it is a lower one than before after a restore
	tr.grant(t)
}

// await waits for a revision to be in force.
func (tr *trial) await(t *testing.T, is func(revision int64) bool) {
	t.Helper()
	proxytest.Eventually(t, func() bool {
		tr.reached(t)
		tr.asking.Lock()
		defer tr.asking.Unlock()
		return is(tr.now.revision)
	}, "revision %d is in force", tr.last)
}

// reached asks the node how far it is. What it says twice is so: of a batch that it takes up at the moment it may not know.
func (tr *trial) reached(t *testing.T) reach {
	tr.asking.Lock()
	defer tr.asking.Unlock()
	status, body := see(t, tr.url+"/endpointz?endpoint=127.0.0.1:1")
	var says struct {
		Revision int64
		Pending  bool
	}
	if err := json.Unmarshal([]byte(body), &says); err != nil || status != 200 || says.Pending {
		says.Revision = 0
	} else if tr.told > 0 {
		tr.now.revision = tr.told
	}
	tr.told = says.Revision
	far := tr.now
	if tr.bound > 0 {
		far.revision = min(far.revision, tr.bound)
	}
	return far
}

func (tr *trial) turn() int {
	tr.asking.Lock()
	defer tr.asking.Unlock()
	return tr.now.turn
}

// attend has clients come, one after another for each role, until the function that it returns is called. Some of them stay.
func (tr *trial) attend(t *testing.T) (leave func()) {
	stop := make(chan struct{})
	var done sync.WaitGroup
	for i, roles := range [][]string{{"primary", "patient"}, {"replica"}, {"cautious"}} {
		random := rand.New(rand.NewPCG(uint64(i), 0))
		done.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				v, talk := tr.visit(t, roles[n%len(roles)])
				stays := v.err == nil && random.IntN(4) == 0
				if !stays && talk != nil {
					talk.Conn.Close()
				}
				tr.mu.Lock()
				tr.visits = append(tr.visits, v)
				if stays {
					tr.guests = append(tr.guests, guest{v, talk})
				}
				tr.mu.Unlock()
				if v.role == "cautious" { // most of these are refused: they tell little of how far the others are
					continue
				}
				select {
				case tr.beat <- struct{}{}:
				default:
				}
			}
		})
	}
	leave = sync.OnceFunc(func() {
		close(stop)
		done.Wait()
	})
	t.Cleanup(leave)
	return leave
}

func (tr *trial) ask(t *testing.T, role string) visit {
	v, talk := tr.visit(t, role)
	if talk != nil {
		talk.Conn.Close()
	}
	return v
}

// visit is one client: it asks who answers.
func (tr *trial) visit(t *testing.T, role string) (v visit, talk *proxytest.Talk) {
	v.role, v.from = role, tr.reached(t)
	talk, v.err = proxytest.TryTalkTo(t, proxytest.On(tr.ports[role]))
	if v.err == nil {
		v.server, v.err = talk.Say("who are you?")
	}
	v.over, v.turn = time.Now(), tr.turn()
	return v, talk
}

// look has those speak who stayed, while nothing changes. Who has a server that serves no more is reset, if that has not happened yet.
// It waits for one with a server that serves, if any does: how fast clients come decides nothing.
func (tr *trial) look(t *testing.T) {
	t.Helper()
	now := tr.present(t)
	if len(now.may["replica"]) > 0 { // or of the primary's
		proxytest.Eventually(t, func() bool {
			tr.mu.Lock()
			defer tr.mu.Unlock()
			return slices.ContainsFunc(tr.guests, func(g guest) bool { return slices.Contains(now.may[g.role], g.server) })
		}, "a client stays at a server of %v", now.may)
	}
	tr.mu.Lock()
	guests := tr.guests
	tr.guests = nil
	tr.mu.Unlock()
	for _, g := range guests {
		g.stayed = true
		if !slices.Contains(now.may[g.role], g.server) {
			if err := proxytest.Discard(g.talk.Conn); !proxytest.IsReset(err) {
				t.Fatalf("who stayed at %s as %s is told %v; want a reset, for %v serves since revision %d at the latest", g.server, g.role, err, now.may[g.role], now.revision)
			}
			g.talk.Conn.Close()
			g.err = errGone
		} else if server, err := g.talk.Say("still there?"); err != nil {
			g.talk.Conn.Close()
			g.err = err
		} else if server != g.server {
			t.Errorf("who stayed at %s is answered by %s", g.server, server)
		}
		g.over, g.turn = time.Now(), tr.turn()
		tr.mu.Lock()
		tr.visits = append(tr.visits, g.visit)
		if g.err == nil {
			tr.guests = append(tr.guests, g)
		}
		tr.mu.Unlock()
	}
}

var errGone = errors.New("the server serves no more")

// takeOver starts a successor, unless one is there, and lets it take over while the keys change.
func (tr *trial) takeOver(t *testing.T) {
	t.Helper()
	if tr.next != nil {
		return
	}
	tr.commit(t, []clientv3.Op{tr.statusOp()})
	tr.asking.Lock()
	tr.bound = tr.last
	tr.now.turn++
	tr.asking.Unlock()
	tr.next = start(t, nil, tr.args...)
}

// tookOver waits until the successor serves, and has in force what etcd says.
func (tr *trial) tookOver(t *testing.T) {
	t.Helper()
	if tr.next == nil {
		return
	}
	tr.next.Stderr.Wait(t, "took over from process")
	if code := tr.node.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
	tr.node, tr.next = tr.next, nil
	tr.asking.Lock()
	tr.told, tr.now.revision = 0, tr.bound // what was said was said of the process before
	tr.asking.Unlock()
	tr.settle(t)
	tr.asking.Lock()
	tr.bound = 0
	tr.now.turn++
	tr.asking.Unlock()
}

// save puts a copy of etcd's data aside. A power cut comes first.
func (tr *trial) save(t *testing.T) (dir string) {
	t.Helper()
	tr.settle(t)
	tr.etcd.Kill()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(tr.etcd.DataDir())); err != nil {
		t.Fatal(err)
	}
	tr.begin(t)
	return dir
}

// restore has etcd go back to such a copy, and waits until the node has. Until then what was in force before may be so.
func (tr *trial) restore(t *testing.T, saved string) {
	t.Helper()
	tr.settle(t)
	tr.remember(t)
	tr.etcd.Kill()
	tr.etcd.SwapDataDir(saved)
	tr.begin(t)
	tr.wrote++
	tr.base = tr.present(t).revision
	tr.settle(t)
	tr.asking.Lock()
	tr.now.era = tr.wrote
	tr.asking.Unlock()
}

// begin starts etcd again. Leases of before are forgotten: they have no keys.
func (tr *trial) begin(t *testing.T) {
	t.Helper()
	tr.etcd.Start(t)
	tr.kv = tr.etcd.Client(t)
	tr.leases = nil
	tr.grant(t)
}
