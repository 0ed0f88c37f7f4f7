package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config/etcdsource/behind"
	"kubeproxy/config/etcdsource/events"
	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// manualProgress is the watch id of an answer to a progress request. Progress that etcd reports on its own carries the id of the watch.
const manualProgress = -1

// A watch is one watch stream, over a connection of its own. It never resumes. Whatever broke it, the
// etcd behind the next connection may be another one with the same ids and revisions, and nothing
// on the wire would tell: so a watch that has broken is over, and a list must say where things stand.
type watch struct {
	inbox    *inbox                          // what has come
	over     chan struct{}                   // closed when the watch is over. The inbox may still hold something
	err      error                           // why; valid once over is closed
	requests chan *etcdserverpb.WatchRequest // what the owner wants to have sent
	gauge    *behind.Gauge                   // of how far it is behind
	reached  func(ctx context.Context) int64 // asks etcd for its revision, over the same connection; 0 when it does not say: see client.reached
	cancel   context.CancelFunc
}

// startWatch opens a watch on the prefix from now on, in a goroutine of its own. fragments asks etcd to cut large responses.
//
// To cut a response etcd measures a fragment anew with each event that it adds, so the time grows with the square of their
// number: for 50,000 deletions of one transaction more than a minute of one processor, for each watch, and the stream is silent
// meanwhile. Whole, the response comes at once. But a watch that lags is sent up to 1,000 revisions in one response, which
// may be larger than maxMessage and ends the stream. So only the session after such an end asks for fragments.
func startWatch(ctx context.Context, cfg *dialer, fragments bool) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{
		inbox:    newInbox(),
		over:     make(chan struct{}),
		requests: make(chan *etcdserverpb.WatchRequest, 4+maxHolderKeys), // the watches of all keys may have to end at once
		gauge:    behind.New(behind.Limits{Revisions: cfg.BehindRevisions, Bytes: cfg.BehindBytes}, 3*cfg.ProbePeriod),
		cancel:   cancel,
	}
	go func() {
		defer close(w.over)
		defer cancel()
		w.err = w.run(ctx, cfg, fragments)
	}()
	return w
}

// run returns why the watch is over.
func (w *watch) run(ctx context.Context, cfg *dialer, fragments bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	deadline := time.AfterFunc(cfg.RequestTimeout, func() {
		cancel(fmt.Errorf("no watch was created for %v", cfg.RequestTimeout))
	})
	defer deadline.Stop()
	c, err := cfg.dial(ctx, nil)
	if err != nil {
		return explain(ctx, err)
	}
	defer c.close()
	w.reached = func(ctx context.Context) int64 { return c.reached(ctx, cfg.readTimeout()) }
	// A member that has lost its leader would keep the stream open and say nothing.
	stream, err := c.watch.Watch(clientv3.WithRequireLeader(ctx), callOptions...)
	if err != nil {
		return fmt.Errorf("open a watch: %w", explain(ctx, err))
	}
	err = stream.Send(creation(&etcdserverpb.WatchCreateRequest{Key: prefixStart, RangeEnd: prefixEnd, ProgressNotify: true, Fragment: fragments}))
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: Recv says why
		return fmt.Errorf("create a watch: %w", explain(ctx, err))
	}

	var sending sync.WaitGroup
	defer sending.Wait()
	defer cancel(nil)
	sending.Go(func() { w.send(ctx, stream) })
	return w.receive(ctx, stream, func() { deadline.Stop() })
}

// errBacklog ends a watch that was sent a response larger than a message may be.
var errBacklog = fmt.Errorf("etcd's next response has more than %d MiB of changes: reading everything is faster", maxMessage>>20)

// maxTransaction bounds the events of one transaction. They take effect together, so all of them have to wait for the last.
const maxTransaction = 64 << 20

// receive puts what the stream delivers into the inbox, until the stream breaks or the watch is cancelled.
func (w *watch) receive(ctx context.Context, stream etcdserverpb.Watch_WatchClient, created func()) error {
	var begun []*mvccpb.Event // of a transaction whose end is still to come
	r := receiver{watch: w, created: created}
	for {
		m, err := stream.Recv()
		if err != nil {
			if err = explain(ctx, err); isTooLarge(err) {
				err = remote.Because(Stale, errBacklog)
			}
			return fmt.Errorf("watch: %w", err)
		}
		d := delivery{at: time.Now(), events: append(begun, m.Events...)}
		begun = nil
		if w.gauge.Stalled(d.at) {
			w.gauge.Reached(w.reached(ctx)) // nothing is taken from the stream meanwhile
		}
		if err := r.measure(m); err != nil {
			return err
		}
		if m.Fragment { // more of the last revision may follow
			if d.events, begun = events.Split(d.events); events.Bytes(begun) > maxTransaction {
				return remote.Because(Unable, fmt.Errorf("one transaction has more than %d MiB of changes", maxTransaction>>20))
			}
			if len(d.events) == 0 {
				continue
			}
		} else if skip, err := r.control(m); err != nil {
			return err
		} else if skip {
			continue
		}
		if len(d.events) == 0 || m.Created {
			d.notices = []notice{{m.Created, m.WatchId == manualProgress, m.Header.GetClusterId(), m.Header.GetRevision(), m.WatchId, m.Canceled && !m.Created, m.CancelReason}}
		}
		if err := w.inbox.put(ctx, d); err != nil {
			return err
		}
	}
}

// A receiver knows which watch of a stream is the one. The others are challenges, or watches of one key (from firstID on).
type receiver struct {
	*watch
	created func()
	stands  bool
	id      int64 // of the watch, once it stands
}

// measure tells the gauge what a response says of how far the watch has come, and etcd.
func (r *receiver) measure(m *etcdserverpb.WatchResponse) (err error) {
	switch {
	case m.Canceled, m.Created && r.stands:
	case len(m.Events) == 0: // it was created, or it has come to that revision
		err = r.gauge.Told(m.Header.GetRevision(), 0)
	case m.WatchId == r.id:
		err = r.gauge.Told(events.Revision(m.Events), events.Bytes(m.Events))
	case m.WatchId >= firstID: // etcd reads its history for a key as well; how far the other watch has come it does not say
		err = r.gauge.Told(0, events.Bytes(m.Events))
	}
	if err != nil {
		return remote.Because(Behind, err)
	}
	r.gauge.Reached(m.Header.GetRevision())
	return nil
}

// control handles what a response says of watches, apart from their events. It reports whether the response says nothing else.
func (r *receiver) control(m *etcdserverpb.WatchResponse) (skip bool, err error) {
	switch {
	case r.stands && m.Created: // a challenge was answered; if it was granted, take it back
		if !m.Canceled && m.WatchId < firstID {
			r.end(m.WatchId)
		}
	case r.stands && m.Canceled && m.WatchId != r.id:
		return m.WatchId < firstID, nil // a challenge that was taken back, or the watch of a key
	case m.CompactRevision != 0:
		return false, remote.Because(Compacted, fmt.Errorf("watch cancelled: what it had to tell next was compacted at revision %d", m.CompactRevision))
	case m.Canceled:
		cause, reason := causeOfCancel(m.CancelReason)
		return false, remote.Because(cause, fmt.Errorf("watch cancelled: %s", registry.Quote(reason)))
	case m.Created:
		r.stands, r.id = true, m.WatchId
		r.created()
	}
	return false, nil
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

// challenge has etcd asked for a sign of life: another watch on this stream, of one key and without events, which is taken back at once.
// Unlike a progress request it is always answered, even if with a refusal, and exactly once.
func (w *watch) challenge() bool {
	return w.ask(creation(&etcdserverpb.WatchCreateRequest{Key: prefixStart, Filters: []etcdserverpb.WatchCreateRequest_FilterType{
		etcdserverpb.WatchCreateRequest_NOPUT, etcdserverpb.WatchCreateRequest_NODELETE}}))
}

// follow has etcd asked for a watch of one key, or of those below it, from now on, beside that of the prefix.
func (w *watch) follow(key string, id int64) bool {
	return w.ask(creation(&etcdserverpb.WatchCreateRequest{Key: []byte(key), RangeEnd: rangeEnd(key), WatchId: id}))
}

// end has etcd asked to end one of the watches.
func (w *watch) end(id int64) bool {
	return w.ask(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: id}}})
}

func creation(req *etcdserverpb.WatchCreateRequest) *etcdserverpb.WatchRequest {
	return &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: req}}
}

// stop ends the watch and waits until nothing of it is left.
func (w *watch) stop() {
	w.cancel()
	<-w.over
}
