package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"kubeproxy/config/etcdsource/truth"
	"kubeproxy/internal/backoff"
	"kubeproxy/scripts/chaos/faults"
	"kubeproxy/scripts/chaos/proxynode"
	"kubeproxy/scripts/internal/try"
)

// An experiment is all parts of a run: see the drawing in doc.go.
type experiment struct {
	settings settings
	logging  sync.Mutex // guards log
	log      io.Writer
	began    time.Time

	history  *truth.History
	writer   *truth.Writer
	recorder *truth.Recorder
	cluster  *faults.Cluster
	node     *proxynode.Child
	backends backends
	due      time.Time // when the next transaction is; guarded by the writer's Gate
	clients  clients
	results  *results

	settledAt chan settledReport // what the node's handlers received last
	stalls    stalls
	ctx       context.Context // of the writer
	cancel    context.CancelFunc
	stopping  []func() // in the order in which things were started
}

// settledReport says that the settled service with this port reached the handlers.
type settledReport struct {
	port int
	at   time.Time
}

// newExperiment starts all parts but the clients. If it fails, it has closed them.
func newExperiment(ctx context.Context, s settings, log io.Writer) (x *experiment, err error) {
	x = &experiment{
		settings:  s,
		log:       log,
		began:     time.Now(),
		history:   new(truth.History),
		results:   newResults(s.factor),
		settledAt: make(chan settledReport, 1<<10),
	}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	x.stop(x.stalls.measure())
	x.history.Add(truth.NewEra(nil, 0))
	x.recorder = truth.NewRecorder(x.history)
	x.stop(x.backends.Close)
	if x.clients.Services, err = newServices(&x.backends); err != nil {
		return x, err
	}
	x.clients.Records, x.clients.Fail = newRecords(x.clients.Services), x.clientFailed

	if x.cluster, err = faults.StartCluster(ctx, s.dir, s.members); err != nil {
		return x, err
	}
	x.stop(func() {
		if err := x.cluster.Close(); err != nil {
			x.Logf("the cluster: %v", err)
		}
	})
	if err := x.startWriter(); err != nil {
		return x, err
	}
	if err := x.startNode(); err != nil {
		return x, err
	}
	return x, nil
}

// stop adds what close has to call, in reverse order.
func (x *experiment) stop(f func()) { x.stopping = append(x.stopping, f) }

func (x *experiment) close() {
	x.cancel() // the writer may wait for an etcd that is gone, and the recorder for the writer
	for len(x.stopping) > 0 {
		last := len(x.stopping) - 1
		x.stopping[last]()
		x.stopping = x.stopping[:last]
	}
}

// startWriter first writes the steady services, so that every state of the registry has them.
func (x *experiment) startWriter() (err error) {
	defer try.Catch(&err)
	x.writer = &truth.Writer{
		History: x.history,
		Random:  rand.New(rand.NewPCG(x.settings.seed, 1)),
		Beat:    make(chan struct{}, 1),
		Words:   truth.Words{Ports: firstPort - 1, Spare: true},
		Invent:  x.invent,
		Pace:    x.pace,
	}
	try.Do(x.renewClient())
	x.stop(func() { _ = x.writer.Client.Close() }) // it only reports that its context has ended
	ctx := x.ctx
	var running sync.WaitGroup
	x.stop(running.Wait)
	try.Do(x.writeSteady(ctx))
	running.Go(func() { x.writer.Run(ctx) })
	running.Go(func() { // the writer does not wait for the counting
		for {
			select {
			case <-x.writer.Beat:
				x.results.wrote()
			case <-ctx.Done():
				return
			}
		}
	})
	return nil
}

// renewClient gives the writer a client without an old token. The caller holds the Gate, or the writer has not started.
//
// An etcd that receives a token waits until its log is as long as it was when the token was issued. After a restore or a wipe the log is
// short again: calls with an old token then wait until their deadline, and clientv3 does not log in anew.
func (x *experiment) renewClient() error {
	client, err := x.cluster.Client()
	if err != nil {
		return err
	}
	if old := x.writer.Client; old != nil {
		_ = old.Close() // it only reports that its context has ended
	}
	x.writer.Client = client
	return nil
}

// writeSteady writes the services that exist throughout. The caller holds the Gate, or the writer has not started.
func (x *experiment) writeSteady(ctx context.Context) error {
	for _, s := range x.clients.Services {
		if x.writer.Commit(ctx, s.Create()) == 0 {
			return errors.New("the steady services could not be written")
		}
	}
	return nil
}

// invent makes the next transaction: every third moves a steady service, by itself or, as a roll-out does, together with others.
func (x *experiment) invent() []truth.Op {
	r := x.writer.Random
	if r.IntN(3) > 0 {
		return x.writer.Change()
	}
	var ops []truth.Op
	for _, i := range r.Perm(len(x.clients.Services))[:1+r.IntN(2)*r.IntN(3)] {
		ops = append(ops, x.clients.Services[i].Move(r))
	}
	return ops
}

// pace returns how long to wait before the next transaction: random, and by the rate on average. After an outage the writer does not catch
// up.
func (x *experiment) pace() time.Duration {
	if now := time.Now(); now.Sub(x.due) > time.Second {
		x.due = now
	}
	x.due = x.due.Add(time.Duration(x.writer.Random.ExpFloat64() * float64(time.Second) / x.settings.rate))
	return time.Until(x.due)
}

// startNode starts the proxy under test, and the check of its reports.
func (x *experiment) startNode() (err error) {
	defer try.Catch(&err)
	log := try.Get(os.Create(filepath.Join(x.settings.dir, "node.log")))
	x.stop(func() { _ = log.Close() }) // the node has ended
	etcd := x.cluster.Source()
	cfg := proxynode.Config{
		Address: nodeAddress, Endpoints: etcd.Endpoints, Username: etcd.Username, Password: etcd.Password,
		SyncPeriod: x.settings.sync, PageSize: etcd.PageSize, ClientTimeout: clientTimeout,
	}
	if !x.settings.login {
		cfg.Username, cfg.Password = "", ""
	}
	x.node = try.Get(proxynode.Start(x.settings.node, cfg, x.settings.verbosity, log))
	var listening sync.WaitGroup
	x.stop(func() { x.node.Close(); listening.Wait() })
	listening.Go(x.listen)
	return nil
}

// listen checks what the node reports, until the node has ended.
func (x *experiment) listen() {
	for r := range x.node.Reports {
		switch {
		case r.Update != nil:
			x.clients.Records.Update(r.Update, r.At) // first: clients wait for it, and the recorder waits for the writer
			x.recorder.Record(*r.Update)
		case r.Settled != nil:
			select {
			case x.settledAt <- settledReport{*r.Settled, r.At}:
			default: // no quiet point has asked for a while
			}
		}
	}
}

// clientFailed counts a failed client, and logs the first ones.
func (x *experiment) clientFailed(err error) {
	if x.results.clientFailed(err) {
		x.Logf("FAILED CLIENT: %v", err)
	}
}

// Logf writes a line to the log of the run, with the time since its beginning. Any goroutine may call it.
func (x *experiment) Logf(format string, args ...any) {
	x.logging.Lock()
	defer x.logging.Unlock()
	fmt.Fprintf(x.log, "%8.3f  %s\n", time.Since(x.began).Seconds(), fmt.Sprintf(format, args...))
}

// Write, Head, PauseNode, ResumeNode, GoBack and Logf are the [faults.Harness].

func (x *experiment) Write(ctx context.Context, n int) error {
	target := x.results.written() + n
	for x.results.written() < target {
		if backoff.Sleep(ctx, 5*time.Millisecond); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

func (x *experiment) Head() int64 { return x.history.Head() }

func (x *experiment) PauseNode() {
	x.clients.Records.Pause(time.Now())
	x.node.Pause()
}

func (x *experiment) ResumeNode() {
	x.node.Resume()
	x.clients.Records.Resume(time.Now())
}

func (x *experiment) GoBack(ctx context.Context, stop func(context.Context) (int64, error), start func(context.Context) error) (err error) {
	defer try.Catch(&err)
	x.writer.Gate.Lock()
	defer x.writer.Gate.Unlock()
	keep := try.Get(stop(ctx))
	if keep == 0 {
		x.cluster.Hide()
		defer func() { err = errors.Join(err, x.cluster.Show()) }()
		x.history.Add(truth.NewEra(nil, 0))
	} else {
		x.history.Add(truth.NewEra(x.history.Newest(), keep))
	}
	x.writer.Forget()
	try.Do(start(ctx))
	try.Do(x.renewClient())
	if keep == 0 {
		return x.writeSteady(ctx)
	}
	return nil
}
