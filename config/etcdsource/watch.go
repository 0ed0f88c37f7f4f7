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
	messages chan message  // closed when it is over, once all that had come was delivered
	done     chan struct{} // closed as soon as it is over
	err      error         // why; valid once done is closed
	asks     chan struct{} // capacity 1: a full channel means that a request is already due
	cancel   context.CancelFunc
}

// A message is one watch response, whole.
type message struct {
	*etcdserverpb.WatchResponse
	at time.Time // when it was received
}

// startWatch opens a watch on the prefix from now on, in a goroutine of its own.
func startWatch(ctx context.Context, cfg *Config) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{
		messages: make(chan message, backlog),
		done:     make(chan struct{}),
		asks:     make(chan struct{}, 1),
		cancel:   cancel,
	}
	go func() {
		defer close(w.messages)
		w.err = w.run(ctx, cfg)
		cancel()
		close(w.done)
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
	stream, err := c.watch.Watch(clientv3.WithRequireLeader(ctx), callOptions...)
	if err != nil {
		return fmt.Errorf("open a watch: %w", explain(ctx, err))
	}
	create := &etcdserverpb.WatchCreateRequest{Key: prefixStart, RangeEnd: prefixEnd, ProgressNotify: true, Fragment: true}
	if err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("create a watch: %w", explain(ctx, err)) // io.EOF: Recv says why
	}

	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel(nil)
	asking.Go(func() { w.ask(ctx, stream) })
	for fragments := (*etcdserverpb.WatchResponse)(nil); ; {
		resp, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("watch: %w", explain(ctx, err))
		}
		if fragments != nil {
			resp.Events = append(fragments.Events, resp.Events...)
		}
		if fragments = resp; resp.Fragment {
			continue // more of the same revision may follow
		}
		fragments = nil
		switch {
		case resp.CompactRevision != 0:
			return fmt.Errorf("watch cancelled: what it had to tell next was compacted at revision %d", resp.CompactRevision)
		case resp.Canceled:
			return fmt.Errorf("watch cancelled: %s", registry.Quote(resp.CancelReason))
		case resp.Created:
			deadline.Stop()
		}
		select {
		case w.messages <- message{resp, time.Now()}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ask sends the progress requests. Sending may block, and the owner must not.
func (w *watch) ask(ctx context.Context, stream etcdserverpb.Watch_WatchClient) {
	request := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: new(etcdserverpb.WatchProgressRequest)}}
	for {
		select {
		case <-w.asks:
			if stream.Send(request) != nil {
				return // Recv says why
			}
		case <-ctx.Done():
			return
		}
	}
}

// askProgress has etcd asked to say which revision the watch has come to, unless that is about to be
// asked already. Etcd may not answer, but never answers twice.
func (w *watch) askProgress() (asked bool) {
	select {
	case w.asks <- struct{}{}:
		return true
	default:
		return false
	}
}

// over tells whether the watch has ended, though messages of it may still wait.
func (w *watch) over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// stop ends the watch and waits until nothing of it is left.
func (w *watch) stop() {
	w.cancel()
	for range w.messages {
	}
}
