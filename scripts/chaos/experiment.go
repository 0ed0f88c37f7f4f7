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
	"kubeproxy/scripts/internal/try"
)

// An experiment is everything that takes part: see the drawing in main.go.
type experiment struct {
	settings settings
	log      io.Writer
	began    time.Time

	history  *truth.History
	writer   *truth.Writer
	recorder *truth.Recorder
	cluster  *cluster
	node     *child
	backends backends
	steady   []*steady
	due      time.Time // when the next transaction is; guarded by the writer's Gate
	told     told
	clients  clients
	results  *results

	settledAt chan settledReport // what the node's handlers were given last
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

// newExperiment starts everything but the clients. It is stopped by close, whatever came of it.
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
	x.stop(x.backends.close)
	if x.steady, err = newSteady(&x.backends); err != nil {
		return x, err
	}
	x.clients.told, x.clients.fail = &x.told, x.clientFailed
	for _, s := range x.steady {
		x.told.watch(s.name)
	}

	if x.cluster, err = startCluster(ctx, s.dir, s.members, x); err != nil {
		return x, err
	}
	x.stop(func() {
		if err := x.cluster.close(); err != nil {
			x.logf("the cluster: %v", err)
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

// stop has something done at the end, in reverse order.
func (x *experiment) stop(f func()) { x.stopping = append(x.stopping, f) }

func (x *experiment) close() {
	x.cancel() // the writer may be waiting for an etcd that is gone, and the judge for the writer
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
		Words:   truth.Words{Ports: firstSteadyPort - 1, Spare: true},
		Invent:  x.invent,
		Pace:    x.pace,
	}
	try.Do(x.renewClient())
	x.stop(func() { _ = x.writer.Client.Close() }) // only tells that its context has ended
	ctx := x.ctx
	var running sync.WaitGroup
	x.stop(running.Wait)
	try.Do(x.writeSteady(ctx))
	running.Go(func() { x.writer.Run(ctx) })
	running.Go(func() { // the writer waits for nobody
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

// renewClient gives the writer a client that knows nothing of before. The caller holds the Gate, or nobody
// writes.
//
// An etcd that is shown a token waits until its log is as long as it was when the token was given, so that
// it knows the token if anybody does. After a restore or a wipe the log is short again: calls with an old
// token then hang until their deadline, and clientv3 never learns that it should log in anew.
func (x *experiment) renewClient() error {
	client, err := x.cluster.client()
	if err != nil {
		return err
	}
	if old := x.writer.Client; old != nil {
		_ = old.Close() // only tells that its context has ended
	}
	x.writer.Client = client
	return nil
}

// writeSteady writes what an empty registry lacks. The caller holds the Gate, or nobody else writes.
func (x *experiment) writeSteady(ctx context.Context) error {
	for _, s := range x.steady {
		if x.writer.Commit(ctx, []truth.Op{s.spec(), s.endpoints()}) == 0 {
			return errors.New("the steady services could not be written")
		}
	}
	return nil
}

// invent makes the next transaction: every third moves a steady service, by itself or, as a roll-out
// does, together with others.
func (x *experiment) invent() []truth.Op {
	r := x.writer.Random
	if r.IntN(3) > 0 {
		return x.writer.Change()
	}
	var ops []truth.Op
	for _, i := range r.Perm(len(x.steady))[:1+r.IntN(2)*r.IntN(3)] {
		ops = append(ops, x.steady[i].move(r))
	}
	return ops
}

// pace keeps to the rate on average, in no rhythm. What an outage has prevented is not made up for.
func (x *experiment) pace() time.Duration {
	if now := time.Now(); now.Sub(x.due) > time.Second {
		x.due = now
	}
	x.due = x.due.Add(time.Duration(x.writer.Random.ExpFloat64() * float64(time.Second) / x.settings.rate))
	return time.Until(x.due)
}

// startNode starts the proxy and the judging of its reports.
func (x *experiment) startNode() (err error) {
	defer try.Catch(&err)
	log := try.Get(os.Create(filepath.Join(x.settings.dir, "node.log")))
	x.stop(func() { _ = log.Close() }) // the node has ended
	etcd := x.cluster.source()
	cfg := nodeConfig{nodeAddress, etcd.Endpoints, etcd.Username, etcd.Password, x.settings.sync, etcd.PageSize}
	if !x.settings.login {
		cfg.Username, cfg.Password = "", ""
	}
	x.node = try.Get(startNode(x.settings.node, cfg, x.settings.verbosity, log))
	var listening sync.WaitGroup
	x.stop(func() { x.node.close(); listening.Wait() })
	listening.Go(x.listen)
	return nil
}

// listen judges what the node reports, until the node has ended.
func (x *experiment) listen() {
	for r := range x.node.reports {
		switch {
		case r.Update != nil:
			x.told.update(r.Update, r.At) // first: the clients wait for it, and the recorder waits for the writer
			x.recorder.Record(*r.Update)
		case r.Settled != nil:
			select {
			case x.settledAt <- settledReport{*r.Settled, r.At}:
			default: // nobody has asked for long
			}
		}
	}
}

// clientFailed takes in one failed client.
func (x *experiment) clientFailed(err error) {
	if x.results.clientFailed(err) {
		x.logf("FAILED CLIENT: %v", err)
	}
}

// logf writes a line to the log of the run, with the time since its beginning.
func (x *experiment) logf(format string, args ...any) {
	fmt.Fprintf(x.log, "%8.3f  %s\n", time.Since(x.began).Seconds(), fmt.Sprintf(format, args...))
}

// write, head, pauseNode, resumeNode and goBack are what faults ask for: see [stage].

func (x *experiment) write(ctx context.Context, n int) error {
	target := x.results.written() + n
	for x.results.written() < target {
		if sleep(ctx, 5*time.Millisecond) != nil {
			return ctx.Err()
		}
	}
	return nil
}

func (x *experiment) head() int64 { return x.history.Head() }

func (x *experiment) pauseNode() { x.node.Pause() }

func (x *experiment) resumeNode() { x.node.Resume() }

func (x *experiment) goBack(ctx context.Context, stop func(context.Context) (int64, error), start func(context.Context) error) (err error) {
	defer try.Catch(&err)
	x.writer.Gate.Lock()
	defer x.writer.Gate.Unlock()
	keep := try.Get(stop(ctx))
	if keep == 0 {
		x.cluster.hide()
		defer func() { err = errors.Join(err, x.cluster.show()) }()
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
