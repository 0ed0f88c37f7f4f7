package etcdsource_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"kubeproxy/config/etcdsource"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/config/etcdsource/truth"
	"kubeproxy/registry"
)

var (
	modelSteps = flag.Int("model.steps", 2640, "transactions that the model test makes")
	modelPage  = flag.Int64("model.page", -1, "keys in a page of a list; 0: lists come in streams; negative: the seed decides")
	modelSeed  = flag.Uint64("model.seed", 0, "seed of the model test's choices; 0 takes a new one")
)

// faultEvery is how many transactions lie between two faults.
const faultEvery = 120

// patience is how long the source may take to notice whatever was done to it. It is not what is
// measured here: it is long.
const patience = 30 * time.Second

// A model is the whole experiment:
//
//	writer ──▶ etcd ◀── line ◀── source ──▶ recorder
//	   └──────────▶ history ◀──────────────────┘
type model struct {
	t        *testing.T
	random   *rand.Rand
	etcd     *etcdtest.Process
	line     *line
	writer   *truth.Writer
	history  *truth.History
	source   *etcdsource.Source
	recorder *truth.Recorder
	saved    []savedData
	turn     []int // the faults that this turn still brings
	began    time.Time
}

// savedData is a data directory, put aside while no etcd ran on it.
type savedData struct {
	dir string
	era *truth.Era
	at  int64 // the newest revision in it
}

// The faults that are expensive. Each turn of the model brings all of them, the first one
// first, the others in random order.
var faults = []struct {
	name string
	do   func(*model)
}{
	{"twin", (*model).twin},
	{"kill", (*model).kill},
	{"restart", (*model).restart},
	{"pause", (*model).pause},
	{"hold", (*model).hold},
	{"flood", (*model).flood},
	{"outage", (*model).outage},
	{"restore", (*model).restore},
	{"wipe", (*model).wipe},
	{"busy twin", (*model).busyTwin},
	{"late news", (*model).lateNews},
}

// The promise of this package, and the only test that looks at nothing else: whatever is written, and
// whatever happens to etcd and to the way there, after every Update the source equals the registry at
// exactly that Update's revision.
func TestAfterEveryUpdateTheSourceEqualsTheRegistry(t *testing.T) {
	t.Parallel()
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("this run again, as far as timing allows: -model.seed=%d -model.steps=%d", seed, *modelSteps)
	m := newModel(t, seed)
	for step := range *modelSteps {
		m.await(1)
		if m.random.IntN(4) == 0 {
			m.source.Resync()
		}
		if m.random.IntN(10) == 0 {
			m.compact()
		}
		if m.random.IntN(400) == 0 {
			m.line.cut()
		}
		if (step+1)%faultEvery == 0 {
			m.fault(step)
		}
	}
	m.settle()
	status := m.source.Status()
	t.Logf("%s over %d eras, %d sessions, ended by %v, %d resyncs", m.recorder.Sum(), m.history.Eras(), status.Sessions, status.Ends, status.Resyncs)
	if status.Divergences > 0 {
		t.Errorf("the source speaks of %d divergences; no event was ever lost", status.Divergences)
	}
}

// fault brings the next fault. Now and then the source may first come to rest, or recover.
func (m *model) fault(step int) {
	m.t.Helper()
	if len(m.turn) == 0 {
		m.turn = append(m.turn, 0) // the twin first, for whom every mistake about identity falls
		for _, i := range m.random.Perm(len(faults) - 1) {
			m.turn = append(m.turn, i+1)
		}
	}
	f := faults[m.turn[0]]
	m.turn = m.turn[1:]
	if m.random.IntN(2) == 0 {
		m.settle()
	}
	m.t.Logf("%v, after %d transactions: %s", time.Since(m.began).Round(time.Millisecond), step, f.name)
	f.do(m)
	switch m.random.IntN(4) {
	case 0:
		m.settle()
	case 1, 2:
		m.catchUp()
	}
}

// catchUp goes on writing, at a moderate pace, until the source has listed again: in the middle of it.
func (m *model) catchUp() {
	m.t.Helper()
	m.writer.Moderate.Store(true)
	defer m.writer.Moderate.Store(false)
	started := time.Now()
	for sets := m.recorder.CountSets(); m.recorder.CountSets() == sets; m.await(1) {
		if time.Since(started) > patience {
			m.t.Fatalf("for %v the source has not listed: %+v", patience, m.source.Status())
		}
	}
}

// newModel starts everything. It all ends with the test, the source first.
func newModel(t *testing.T, seed uint64) *model {
	m := &model{t: t, random: rand.New(rand.NewPCG(seed, 0)), history: new(truth.History), began: time.Now()}
	// Short elections: most of a restart would be waiting for one.
	m.etcd = etcdtest.StartProcess(t, "--heartbeat-interval=10", "--election-timeout=50")
	m.line = newLine(t, m.etcd.Addr())
	m.history.Add(truth.NewEra(nil, 0))
	m.recorder = truth.NewRecorder(m.history)
	m.writer = &truth.Writer{
		History: m.history,
		Client:  newClient(t, m.etcd.URL()),
		Random:  rand.New(rand.NewPCG(seed, 1)),
		Beat:    make(chan struct{}, 50),
	}
	page := pick(m.random, []int64{0, 0, 0, 2, 3, 4, 5})
	if *modelPage >= 0 {
		page = *modelPage
	}
	t.Logf("-model.page=%d", page)
	limits := rand.New(rand.NewPCG(seed, 2)) // a stream of its own, so that seeds of before mean what they meant
	revisions, bytes := pick(limits, []int64{0, 1, 20, 100}), pick(limits, []int{1, 4 << 10})
	t.Logf("a watch that is %d revisions behind may tell %d bytes; 0: as many as usual", revisions, bytes)
	var err error
	m.source, err = etcdsource.New(etcdsource.Config{
		Endpoints:      []string{m.line.url()},
		DialTimeout:    time.Second,
		SyncPeriod:     pick(m.random, []time.Duration{50 * time.Millisecond, 200 * time.Millisecond}),
		PageSize:       page,
		RequestTimeout: pick(m.random, []time.Duration{500 * time.Millisecond, 2 * time.Second}),
		ProbePeriod:    pick(m.random, []time.Duration{100 * time.Millisecond, time.Second}),

		BehindRevisions: revisions,
		BehindBytes:     bytes,
	})
	if err != nil {
		t.Fatal(err)
	}

	updates := make(chan registry.Update, 1<<14) // the source is never held up by the comparing
	var sourceDone, recorderDone, writerDone sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	sourceDone.Go(func() {
		if err := m.source.Run(ctx, updates); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the source ended: %v", err)
		}
	})
	recorderDone.Go(func() { m.recorder.Run(updates) })
	writerDone.Go(func() { m.writer.Run(ctx) })
	t.Cleanup(func() {
		stop()
		sourceDone.Wait()
		writerDone.Wait()
		close(updates)
		recorderDone.Wait()
	})
	return m
}

// newClient returns a client of the test's own, which is quick to find an etcd that came back.
func newClient(t *testing.T, url string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{url},
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.2, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: time.Second,
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// await lets the writer make n transactions. It ends the test when a comparison has failed.
func (m *model) await(n int) {
	m.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for range n {
		select {
		case <-m.writer.Beat:
		case <-m.recorder.Failed():
			m.t.Fatal(m.recorder.Err())
		case <-timer.C:
			m.t.Fatal("the writer is stuck")
		}
	}
}

// settle stops the writer and waits until the source has caught up with everything: the newest era, at
// its newest revision. Then the history itself is held against etcd.
func (m *model) settle() {
	m.t.Helper()
	m.writer.Gate.Lock()
	defer m.writer.Gate.Unlock()
	m.settleAlone()
}

// settleAlone is settle for a caller who holds the gate.
func (m *model) settleAlone() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	revision := m.writer.Commit(ctx, []truth.Op{m.settled()})
	m.checkHistory(ctx)
	m.reach(revision)
}

// settled is the op that brings the source to rest: at least its value is never the same.
func (m *model) settled() truth.Op {
	op, _ := m.writer.Settled()
	return op
}

// reach waits until the source has come to revision.
func (m *model) reach(revision int64) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	if err := m.recorder.WaitFor(ctx, revision); err != nil {
		m.t.Fatal(err)
	}
}

// checkHistory compares what the history says of this moment with what etcd says.
func (m *model) checkHistory(ctx context.Context) {
	m.t.Helper()
	resp, err := m.writer.Client.Get(ctx, registry.Prefix, clientv3.WithPrefix())
	if err != nil {
		m.t.Fatal(err)
	}
	e := m.history.Newest()
	if resp.Header.Revision != e.Head() {
		m.t.Fatalf("the test's own history is wrong: it ends at %d, etcd is at %d", e.Head(), resp.Header.Revision)
	}
	state := e.State(e.Head())
	for _, kv := range resp.Kvs {
		v := state[string(kv.Key)]
		if v == nil || v.Value != string(kv.Value) || v.Created != kv.CreateRevision || v.Revision != kv.ModRevision {
			m.t.Fatalf("the test's own history is wrong about %q: %+v; etcd has %v", kv.Key, v, kv)
		}
		delete(state, string(kv.Key))
	}
	if len(state) > 0 {
		m.t.Fatalf("the test's own history is wrong: etcd knows nothing of %v", state)
	}
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }
