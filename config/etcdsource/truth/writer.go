package truth

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
)

// SerialKey is written by every transaction, outside the prefix. Each is conditional on what the one
// before left there, so that a writer that lost its connection in the middle of one can find out, once
// and for all, whether etcd committed it.
const SerialKey = "/model/serial"

// A Writer makes random changes in a real etcd, one transaction after the other, and writes each down
// in the history with the revision that etcd gave it.
type Writer struct {
	History *History
	Client  *clientv3.Client
	Random  *rand.Rand           // belongs to the holder of Gate
	Gate    sync.Mutex           // held for each transaction; who else holds it has the registry to himself
	Beat    chan struct{}        // one for each transaction made; its capacity is how far the writer may run ahead
	Invent  func() []Op          // the next transaction; nil means Writer.Change
	Words   Words                // what it is made of
	Pace    func() time.Duration // the pause before the next transaction; asked with Gate held. nil: as the writer likes, from none to some ms

	Moderate atomic.Bool // not at full speed, whatever it likes

	serial  int
	last    string // what SerialKey holds
	known   bool   // last is right
	settles int
}

// Run makes transactions until ctx is done. Without a Pace of its own it changes pace: the source has
// to be right when it can keep up and when it cannot. An error says that etcd gave no answer although
// ctx was not done.
func (w *Writer) Run(ctx context.Context) {
	var pace time.Duration
	for n := 0; ctx.Err() == nil; n++ {
		if w.Moderate.Load() {
			pace = 300 * time.Microsecond
		}
		sleep(ctx, pace)
		w.Gate.Lock() // also for the random numbers, which faults draw from too
		if w.Invent != nil {
			w.Commit(ctx, w.Invent())
		} else {
			w.Commit(ctx, w.Change())
		}
		switch {
		case w.Pace != nil:
			pace = w.Pace()
		case n%40 == 0:
			pace = pick(w.Random, []time.Duration{0, 0, time.Millisecond, 3 * time.Millisecond})
		}
		w.Gate.Unlock()
		select {
		case w.Beat <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Forget has the writer ask etcd what SerialKey holds before the next transaction: etcd's data were
// exchanged. The caller holds Gate.
func (w *Writer) Forget() { w.known = false }

// Commit makes one transaction and returns its revision. When etcd dies in the middle it waits until
// etcd is back and can say whether it was made: the revision is 0 if it was not, or if ctx was done
// first. The caller holds Gate.
func (w *Writer) Commit(ctx context.Context, ops []Op) int64 {
	w.History.mu.Lock()
	defer w.History.mu.Unlock()
	if !w.recall(ctx) {
		return 0
	}
	w.serial++
	serial := strconv.Itoa(w.serial)
	revision, err := w.try(ctx, serial, ops)
	if err != nil {
		revision = w.whatBecameOf(ctx, serial)
	}
	if revision == 0 {
		return 0
	}
	w.last = serial
	w.History.Newest().Commit(revision, ops)
	return revision
}

// recall makes sure that last is what SerialKey holds.
func (w *Writer) recall(ctx context.Context) bool {
	for !w.known && ctx.Err() == nil {
		get, cancel := context.WithTimeout(ctx, attempt)
		resp, err := w.Client.Get(get, SerialKey)
		cancel()
		if err != nil {
			sleep(ctx, betweenAttempts)
			continue
		}
		w.last, w.known = "", true
		if len(resp.Kvs) == 1 {
			w.last = string(resp.Kvs[0].Value)
		}
	}
	return w.known
}

// How long one attempt may take to make a transaction or to learn whether it was made, and how long to
// wait before the next.
const (
	attempt         = time.Second
	betweenAttempts = 20 * time.Millisecond
)

// try commits a transaction if no other write came first. The revision is 0, without an error, if
// one did.
func (w *Writer) try(ctx context.Context, serial string, ops []Op) (int64, error) {
	unchanged := clientv3.Compare(clientv3.Value(SerialKey), "=", w.last)
	if w.last == "" {
		unchanged = clientv3.Compare(clientv3.CreateRevision(SerialKey), "=", 0)
	}
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	resp, err := w.Client.Txn(ctx).If(unchanged).Then(etcdOps(ops, serial)...).Else(clientv3.OpGet(SerialKey)).Commit()
	switch {
	case err != nil:
		return 0, err
	case resp.Succeeded:
		return resp.Header.Revision, nil
	}
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) == 1 && string(kvs[0].Value) == serial {
		return kvs[0].ModRevision, nil // an earlier attempt of ours
	}
	return 0, nil
}

// whatBecameOf returns the revision at which a transaction was committed although its answer was
// lost, 0 if it was not. To ask is not enough: in a cluster it may still be on its way, in a member
// that is paused, and be committed later. So a transaction of nothing is put in its place, under
// the same condition: one of the two can succeed, and which of them did is the answer.
func (w *Writer) whatBecameOf(ctx context.Context, serial string) int64 {
	fence := "instead of " + serial
	for ctx.Err() == nil {
		revision, err := w.try(ctx, fence, nil)
		switch {
		case err != nil:
			sleep(ctx, betweenAttempts)
		case revision != 0:
			w.last = fence
			w.History.Newest().Commit(revision, nil)
			return 0
		default:
			// A write has succeeded, and it was not the fence: it was the transaction, as there is no other writer.
			get, cancel := context.WithTimeout(ctx, attempt)
			resp, err := w.Client.Get(get, SerialKey)
			cancel()
			if err == nil && len(resp.Kvs) == 1 && string(resp.Kvs[0].Value) == serial {
				return resp.Kvs[0].ModRevision
			}
		}
	}
	w.known = false
	return 0
}

// Replay makes a transaction that another etcd has seen already, unconditionally and outside the
// history, and returns its revision.
func (w *Writer) Replay(ctx context.Context, ops []Op) (int64, error) {
	resp, err := w.Client.Txn(ctx).Then(etcdOps(ops, "replayed")...).Commit()
	if err != nil {
		return 0, fmt.Errorf("replay a transaction: %w", err)
	}
	return resp.Header.Revision, nil
}

// etcdOps translates a transaction for the client.
func etcdOps(ops []Op, serial string) []clientv3.Op {
	out := []clientv3.Op{clientv3.OpPut(SerialKey, serial)}
	for _, o := range ops {
		switch {
		case !o.Remove:
			out = append(out, clientv3.OpPut(o.Key, o.Value))
		case o.End == "":
			out = append(out, clientv3.OpDelete(o.Key))
		default:
			out = append(out, clientv3.OpDelete(o.Key, clientv3.WithRange(o.End)))
		}
	}
	return out
}

// SettledKey is written when the source is to come to rest, with a good value, never the same.
const SettledKey = registry.SpecsPrefix + "settled"

// Settled invents the value of SettledKey, and tells the port in it. The caller holds Gate.
func (w *Writer) Settled() (op Op, port int) {
	w.settles++
	port = 1 + w.settles%w.Words.ports()
	return Op{Key: SettledKey, Value: fmt.Sprintf(`{"kind":"Service","id":"settled","port":%d}`, port)}, port
}
