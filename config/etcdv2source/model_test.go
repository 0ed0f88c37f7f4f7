package etcdv2source

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"kubeproxy/config/etcdsource/truth"
	"kubeproxy/config/etcdv2source/etcdv2test"
	"kubeproxy/internal/process"
	"kubeproxy/registry"
)

var (
	modelFor  = flag.Duration("model.for", 2*time.Second, "how long the model test runs")
	modelSeed = flag.Uint64("model.seed", 0, "seed of the model test's choices; 0 takes a new one")
	modelEtcd = flag.String("model.etcd", "", "`program` of a real etcd with a v2 API, such as /usr/bin/etcd of 3.4, in place of the one in memory")
)

// A model is the whole experiment. One writer writes to an etcd 2, and enters everything into a history; a recorder holds each Update
// of the source against it.
type model struct {
	t       *testing.T
	random  *rand.Rand
	etcd    etcd2
	history *truth.History
	words   *truth.Writer // invents values
	serial  int
	last    int64 // the index of the last write

	source   *Source
	recorder *truth.Recorder
}

// An etcd2 is what the experiment needs of an etcd.
type etcd2 interface {
	url() string
	faults() map[string]func(*model)
}

// The promise of this package: whatever is written, and whatever happens to etcd, after every Update the source equals the
// registry at exactly that Update's index.
func TestAfterEveryUpdateOfEtcd2TheSourceEqualsTheRegistry(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("this run again, as far as timing allows: -model.seed=%d", seed)
	m := newModel(t, seed)
	faults := m.etcd.faults()
	var names []string
	counts := make(map[string]int)
	for began := time.Now(); time.Since(began) < *modelFor; {
		for range 20 + m.random.IntN(100) {
			m.write(t.Context())
			if m.random.IntN(20) == 0 {
				m.source.Resync()
			}
			if m.random.IntN(4) == 0 {
				time.Sleep(time.Duration(m.random.IntN(3000)) * time.Microsecond) // the writer's own pace; nothing waits for it
			}
		}
		if m.random.IntN(3) > 0 {
			m.settle()
		}
		if len(names) == 0 {
			for name := range faults {
				names = append(names, name)
			}
		}
		name := names[0]
		names = names[1:]
		counts[name]++
		if *modelEtcd != "" {
			t.Logf("%v, at index %d: %s", time.Since(began).Round(time.Millisecond), m.last, name)
		}
		faults[name](m)
	}
	m.settle()
	st := m.source.Status()
	t.Logf("%s over %d eras, %d writes, %d sessions, %d resyncs, %d setbacks; faults %v", m.recorder.Sum(), m.history.Eras(), m.serial, st.Sessions, st.Resyncs, st.Setbacks, counts)
	if st.Divergences > 0 {
		t.Errorf("the source speaks of %d divergences; no event was ever lost", st.Divergences)
	}
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{t: t, random: rand.New(rand.NewPCG(seed, 0)), history: new(truth.History)}
	m.history.Add(truth.NewEra(nil, 0))
	m.recorder = truth.NewRecorder(m.history)
	m.words = &truth.Writer{History: m.history, Random: m.random}
	if *modelEtcd == "" {
		m.etcd = &inMemory{etcdv2test.Start(t)}
	} else {
		m.etcd = newReal(t)
	}
	m.learn()
	cfg := quick(m.etcd.url())
	cfg.SyncPeriod = []time.Duration{30 * time.Millisecond, 300 * time.Millisecond}[m.random.IntN(2)]
	cfg.ProbePeriod = []time.Duration{20 * time.Millisecond, 200 * time.Millisecond}[m.random.IntN(2)]
	var err error
	if m.source, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	updates := make(chan registry.Update, 1<<14) // the source is never held up by the comparing
	ctx, stop := context.WithCancel(context.Background())
	var source, recorder sync.WaitGroup
	source.Go(func() {
		if err := m.source.Run(ctx, updates); err != nil {
			t.Errorf("the source ended: %v", err)
		}
	})
	recorder.Go(func() { m.recorder.Run(updates) })
	t.Cleanup(func() {
		stop()
		source.Wait()
		close(updates)
		recorder.Wait()
	})
	return m
}

// learn finds out at which index etcd begins.
func (m *model) learn() {
	m.t.Helper()
	m.history.Write(func() (int64, []truth.Op) {
		m.last = m.index()
		return m.last, nil
	})
}

// index asks etcd for its index, until it answers.
func (m *model) index() int64 {
	m.t.Helper()
	for deadline := time.Now().Add(longEnough); ; time.Sleep(5 * time.Millisecond) {
		resp, err := writer.Get(m.etcd.url() + "/v2/keys/?quorum=true")
		if err == nil {
			index, err := indexOf(resp)
			resp.Body.Close()
			if err == nil && resp.StatusCode == http.StatusOK {
				return index
			}
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("etcd does not answer: %v", err)
		}
	}
}

// The keys of the experiment: few, so that they are written again and again; two that name one object, and some that are no records.
var modelKeys = []string{
	registry.SpecsPrefix + "a", registry.SpecsPrefix + "b", registry.SpecsPrefix + "default/a", registry.SpecsPrefix + "prod/a", registry.SpecsPrefix + "prod/b",
	registry.EndpointsPrefix + "a", registry.EndpointsPrefix + "default/a", registry.EndpointsPrefix + "prod/a", registry.EndpointsPrefix + "dev/x/y",
	registry.EndpointSlicesPrefix + "default/a-1", registry.EndpointSlicesPrefix + "default/a-2", registry.EndpointSlicesPrefix + "prod/a-1",
	registry.Prefix + "others/a", "/registry/minions/a", "/registry/minions/b",
}

// A change is one request, and what it means.
type change struct {
	method, key string
	form        []string
	op          truth.Op
}

// invent makes up the next change.
func (m *model) invent() change {
	m.serial++
	key := modelKeys[m.random.IntN(len(modelKeys))]
	exists := m.history.Newest().State(m.last)[key] != nil
	switch n := m.random.IntN(20); {
	case n == 0:
		dirs := []string{registry.SpecsPrefix + "prod", registry.EndpointsPrefix + "dev", strings.TrimSuffix(registry.EndpointsPrefix, "/"), "/registry"}
		dir := dirs[min(m.random.IntN(len(dirs)), m.random.IntN(len(dirs)))]
		return change{http.MethodDelete, dir, []string{"recursive", "true"}, truth.Op{Key: dir + "/", End: dir + "0", Remove: true}}
	case n < 4:
		return change{http.MethodDelete, key, nil, truth.Op{Key: key, Remove: true}}
	case strings.HasPrefix(key, "/registry/minions"):
		return change{http.MethodPut, key, []string{"value", fmt.Sprint(m.serial)}, truth.Op{Key: key}}
	}
	op := m.words.Put(key)
	return change{http.MethodPut, key, []string{"value", op.Value, "prevExist", fmt.Sprint(exists)}, op} // a set has a new createdIndex, which is another test's
}

// write makes one write, and enters it into the history.
func (m *model) write(ctx context.Context) {
	m.t.Helper()
	select {
	case <-m.recorder.Failed():
		m.t.Fatal(m.recorder.Err())
	default:
	}
	c := m.invent()
	m.history.Write(func() (int64, []truth.Op) { return m.do(ctx, c), []truth.Op{c.op} })
}

// do returns the index of a write, 0 if it was refused.
func (m *model) do(ctx context.Context, c change) int64 {
	m.t.Helper()
	attempt, cancel := context.WithTimeout(ctx, longEnough)
	defer cancel()
	index, err := tryWrite(attempt, m.etcd.url(), c.method, c.key, c.form...)
	if e, ok := errors.AsType[*apiError](err); ok && e.Code != 0 && e.Code < 300 {
		return 0 // such a key is not there, or a directory is in the way
	}
	if err != nil {
		m.t.Errorf("a write: %v", err)
		return 0
	}
	m.last = index
	return index
}

// settle waits until the source has caught up with everything.
func (m *model) settle() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), longEnough)
	defer cancel()
	op, _ := m.words.Settled()
	m.history.Write(func() (int64, []truth.Op) {
		exists := m.history.Newest().State(m.last)[op.Key] != nil
		return m.do(ctx, change{http.MethodPut, op.Key, []string{"value", op.Value, "prevExist", fmt.Sprint(exists)}, op}), []truth.Op{op}
	})
	if err := m.recorder.WaitFor(ctx, m.last); err != nil {
		m.t.Fatalf("%v\n%+v", err, m.source.Status())
	}
}

// renew begins an era in which nothing has been written; wipe makes it so.
func (m *model) renew(wipe func()) {
	m.history.Add(truth.NewEra(nil, 0))
	m.history.Write(func() (int64, []truth.Op) {
		wipe()
		m.last = m.index()
		return m.last, nil
	})
}

// inMemory is the etcd 2 of package etcdv2test.
type inMemory struct{ *etcdv2test.Server }

func (e *inMemory) url() string { return e.URL }

func (e *inMemory) faults() map[string]func(*model) {
	return map[string]func(*model){
		"cut":     func(*model) { e.Cut() },
		"restart": func(*model) { e.Forget(); e.Cut() },
		"short history": func(m *model) {
			e.SetWindow(3)
			for range 50 {
				m.write(m.t.Context())
			}
			e.SetWindow(etcdv2test.Window)
		},
		"wipe": func(m *model) {
			m.renew(func() {
				e.Wipe()
				e.Cut()
			})
		},
		"silence": func(m *model) {
			e.Silence()
			deadline := time.Now().Add(longEnough)
			for m.source.Status().Connected && time.Now().Before(deadline) {
				time.Sleep(time.Millisecond)
			}
			e.Resume()
		},
	}
}

// realEtcd is a process, at addresses that stay the same.
type realEtcd struct {
	*process.Process
	t            *testing.T
	data, logs   string
	client, peer string
}

func newReal(t *testing.T) *realEtcd {
	port, err := process.FreePorts(20000, 32000, 2)
	if err != nil {
		t.Fatal(err)
	}
	r := &realEtcd{t: t, data: t.TempDir(), logs: t.TempDir(), client: fmt.Sprintf("http://127.0.0.1:%d", port), peer: fmt.Sprintf("http://127.0.0.1:%d", port+1)}
	r.start()
	t.Cleanup(func() { r.Kill() })
	return r
}

func (r *realEtcd) start() {
	r.t.Helper()
	var err error
	r.Process, err = process.Start(r.logs, "etcd", *modelEtcd, "--enable-v2", "--data-dir="+r.data, "--heartbeat-interval=10", "--election-timeout=50", "--snapshot-count=500",
		"--listen-client-urls="+r.client, "--advertise-client-urls="+r.client,
		"--listen-peer-urls="+r.peer, "--initial-advertise-peer-urls="+r.peer, "--initial-cluster=default="+r.peer)
	if err != nil {
		r.t.Fatal(err)
	}
	// It writes its own name when it has started, which is a write like any other.
	if err := r.Await(longEnough, func() bool { return r.Said("published ") }); err != nil {
		r.t.Fatal(err)
	}
}

// again ends etcd by kill, and starts it again, while no reader looks at the history. Meanwhile one write may be under way.
func (r *realEtcd) again(m *model, kill func(), c *change) {
	m.history.Write(func() (int64, []truth.Op) {
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			if c != nil {
				time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond) // anywhere in the write
			}
			kill()
		}()
		var index int64
		var err error
		if c != nil {
			index, err = tryWrite(m.t.Context(), r.client, c.method, c.key, c.form...)
		}
		<-killed
		r.start()
		if _, refused := errors.AsType[*apiError](err); err != nil && !refused {
			index = m.whatBecameOf(*c)
		}
		if index > 0 {
			m.history.Newest().Commit(index, []truth.Op{c.op})
		}
		m.last = m.index()
		return m.last, nil
	})
}

// whatBecameOf gives the index of a write whose answer was lost, 0 if it was not made. The key has no other writer.
func (m *model) whatBecameOf(c change) int64 {
	m.t.Helper()
	resp, err := writer.Get(m.etcd.url() + "/v2/keys" + c.key + "?quorum=true")
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	var now response
	there := resp.StatusCode == http.StatusOK
	if there {
		if err := decode(resp.Body, maxEvent, &now); err != nil {
			m.t.Fatal(err)
		}
	}
	switch {
	case c.method == http.MethodPut && there && !now.Node.Dir && now.Node.ModifiedIndex > m.last:
		return now.Node.ModifiedIndex
	case c.method == http.MethodDelete && !there:
		return m.last + 1 // if there was nothing to delete, nothing is deleted in the history either
	}
	return 0
}

func (r *realEtcd) url() string { return r.client }

func (r *realEtcd) faults() map[string]func(*model) {
	return map[string]func(*model){
		"SIGKILL": func(m *model) { r.again(m, r.Kill, nil) },
		"SIGKILL in the middle of a write": func(m *model) {
			for range 5 {
				c := m.invent()
				r.again(m, r.Kill, &c)
			}
		},
		"SIGTERM": func(m *model) { r.again(m, r.Stop, nil) },
		"SIGSTOP": func(m *model) {
			r.Pause()
			deadline := time.Now().Add(longEnough)
			for m.source.Status().Connected && time.Now().Before(deadline) {
				time.Sleep(time.Millisecond)
			}
			r.Resume()
		},
		"1,500 writes elsewhere": func(m *model) {
			for range 1500 {
				m.history.Write(func() (int64, []truth.Op) {
					return m.do(m.t.Context(), change{method: http.MethodPut, key: "/registry/minions/a", form: []string{"value", "x"}}), nil
				})
			}
		},
		"wipe": func(m *model) {
			r.Kill()
			m.renew(func() {
				if err := os.RemoveAll(r.data); err != nil {
					r.t.Fatal(err)
				}
				r.start()
			})
		},
	}
}
