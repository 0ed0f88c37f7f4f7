package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
)

// manualProgress is the watch id of an answer to a progress request. Progress that etcd reports on
// its own carries the id of the watch.
const manualProgress = -1

// backlog is how many responses may wait for the owner. Behind them the stream's flow control holds
// etcd back, which keeps the events on its disk: nothing grows without bound.
const backlog = 256

// A watch is one watch stream, over a connection of its own. It never resumes. Whatever broke it, the
// etcd behind the next connection may be another one with the same ids and revisions, and nothing
// on the wire would tell: so a watch that has broken is over, and a list must say where things stand.
type watch struct {
	messages chan message                    // closed when it is over, once all that had come was delivered
	err      error                           // why; valid once messages is closed
	requests chan *etcdserverpb.WatchRequest // what the owner wants to have sent
	cancel   context.CancelFunc
}

// startWatch opens a watch on the prefix from now on, in a goroutine of its own.
func startWatch(ctx context.Context, cfg *Config) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{
		messages: make(chan message, backlog),
		requests: make(chan *etcdserverpb.WatchRequest, 4),
		cancel:   cancel,
	}
	go func() {
		defer close(w.messages)
		defer cancel()
		w.err = w.run(ctx, cfg)
	}()
	return w
}

// run returns why the watch is over.
func (w *watch) run(ctx context.Context, cfg *Config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	deadline := time.AfterFunc(cfg.RequestTimeout, func() {
		cancel(fmt.Errorf("no watch was created for %v", cfg.RequestTimeout))
	})
	defer deadline.Stop()
	c, err := cfg.dial(ctx)
	if err != nil {
		return explain(ctx, err)
	}
	defer c.close()
	// A member that has lost its leader would keep the stream open and say nothing.
	stream, err := c.watch.Watch(clientv3.WithRequireLeader(ctx), answersReadBy(newMessageReader())...)
	if err != nil {
		return fmt.Errorf("open a watch: %w", explain(ctx, err))
	}
	err = stream.Send(creation(&etcdserverpb.WatchCreateRequest{Key: prefixStart, RangeEnd: prefixEnd, ProgressNotify: true, Fragment: true}))
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: Recv says why
		return fmt.Errorf("create a watch: %w", explain(ctx, err))
	}

	var sending sync.WaitGroup
	defer sending.Wait()
	defer cancel(nil)
	sending.Go(func() { w.send(ctx, stream) })
	return w.receive(ctx, stream, func() { deadline.Stop() })
}

// receive passes on what the stream says, until it breaks or the watch is cancelled.
func (w *watch) receive(ctx context.Context, stream etcdserverpb.Watch_WatchClient, created func()) error {
	stands := false
	var id int64          // of the watch, once it stands. Others on the stream are challenges
	var fragments []event // of the message that is under way
	var m message
	for {
		m = message{} // nothing is to keep the last one while etcd is silent
		if err := stream.RecvMsg(&m); err != nil {
			return fmt.Errorf("watch: %w", explain(ctx, err))
		}
		if len(fragments) > 0 {
			m.events, fragments = append(fragments, m.events...), nil
		}
		switch {
		case m.fragment: // more of the same revision may follow
			fragments = m.events
			continue
		case stands && m.created: // a challenge was answered; if it was granted, take it back
			if !m.canceled {
				w.ask(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{
					CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: m.id}}})
			}
		case stands && m.canceled && m.id != id:
			continue // a challenge that was taken back
		case m.compacted != 0:
			return failure{Compacted, fmt.Errorf("watch cancelled: what it had to tell next was compacted at revision %d", m.compacted)}
		case m.canceled:
			cause, reason := causeOfCancel(m.reason)
			return failure{cause, fmt.Errorf("watch cancelled: %s", registry.Quote(reason))}
		case m.created:
			stands, id = true, m.id
			created()
		}
		m.at = time.Now()
		select {
		case w.messages <- m:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// send sends the requests. That may block, and the owner must not.
func (w *watch) send(ctx context.Context, stream etcdserverpb.Watch_WatchClient) {
	for {
		select {
		case req := <-w.requests:
			if stream.Send(req) != nil {
				return // Recv says why
			}
		case <-ctx.Done():
			return
		}
	}
}

// ask has a request sent, unless too many wait already: then the stream is stuck.
func (w *watch) ask(req *etcdserverpb.WatchRequest) bool {
	select {
	case w.requests <- req:
		return true
	default:
		return false
	}
}

// askProgress has etcd asked to which revision the watch has come. The answer has the watch id
// manualProgress, and comes only if the watch has told of everything there is.
func (w *watch) askProgress() bool {
	return w.ask(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{
		ProgressRequest: new(etcdserverpb.WatchProgressRequest)}})
}

// challenge has etcd asked for a sign of life: another watch on this stream, of one key and without
// events, which is taken back at once. Unlike a progress request it is always answered, even if with a
// refusal, and exactly once.
func (w *watch) challenge() bool {
	return w.ask(creation(&etcdserverpb.WatchCreateRequest{Key: prefixStart, Filters: []etcdserverpb.WatchCreateRequest_FilterType{
		etcdserverpb.WatchCreateRequest_NOPUT, etcdserverpb.WatchCreateRequest_NODELETE}}))
}

func creation(req *etcdserverpb.WatchCreateRequest) *etcdserverpb.WatchRequest {
	return &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: req}}
}

// stop ends the watch and waits until nothing of it is left.
func (w *watch) stop() {
	w.cancel()
	for range w.messages {
	}
}
