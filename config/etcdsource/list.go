package etcdsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
)

// The keys that make the registry: everything that begins with the prefix (D16).
var (
	prefixStart = []byte(registry.Prefix)
	prefixEnd   = []byte(clientv3.GetPrefixRangeEnd(registry.Prefix))
)

// A listing is what etcd answered to a question about the prefix.
type listing struct {
	cluster  uint64
	revision int64 // the keys are of this revision
	count    int64 // how many keys there are, listed or not
	kvs      []*mvccpb.KeyValue
	known    []familiar // the other keys: those whose values were known when they came
	decoded  []decoding // of kvs, one for one; nil where nobody asked for it
	asked    time.Time  // when the first page was asked for: everything from before is in the list
	at       time.Time  // when the answer was complete
}

// What one list may hold, and one message. An etcd that sends more is wrong or hostile: the default quota of its whole
// history is 2 GiB, and 10,000 services take 10 MiB.
const (
	maxKeys     = 1 << 20
	maxRegistry = 512 << 20 // bytes of keys and values
	maxMessage  = 32 << 20
)

func tooManyKeys() error {
	return failure{Unable, fmt.Errorf("more than %d keys below %s: too many for a proxy", maxKeys, registry.Prefix)}
}

func tooLarge() error {
	return failure{Unable, fmt.Errorf("more than %d MiB of keys and values below %s: too much for a proxy", maxRegistry>>20, registry.Prefix)}
}

// A question is put to etcd with a client that may be used for nothing else meanwhile. It calls more
// whenever a part of the answer is in: the next part has as much time again.
type question func(ctx context.Context, c *client, more func()) (listing, error)

// list asks for all keys at one revision, 0 for the newest. However long it takes, the answer is one
// snapshot: every page is read at the revision of the first. The values of a page are decoded while the
// next one is on its way, if they are to be. Of those that are known nothing else is kept, if it is said what is known.
func list(revision int64, weak bool, pageSize int64, decoded bool, known *records) question {
	return func(ctx context.Context, c *client, more func()) (listing, error) {
		for {
			var d *decoder
			if decoded {
				d = new(decoder)
			}
			l, err := c.list(ctx, revision, weak, pageSize, more, d, known)
			l.decoded = d.wait()
			switch {
			case errors.Is(err, rpctypes.ErrCompacted) && revision == 0 && ctx.Err() == nil:
				// The snapshot was compacted between two pages: take another, in larger pages, so that
				// this ends however busy etcd is. A single page cannot be compacted half-way.
				pageSize *= 2
			case isTooLarge(err) && pageSize > 1:
				pageSize /= 2
			case errors.Is(err, rpctypes.ErrFutureRev) && weak:
				weak = false // this member has not come so far yet: ask them all
			default:
				return l, err
			}
		}
	}
}

// mostRoom is for how many keys room is made on etcd's word alone.
const mostRoom = 1 << 16

func (c *client) list(ctx context.Context, revision int64, weak bool, pageSize int64, more func(), d *decoder, known *records) (listing, error) {
	req := &etcdserverpb.RangeRequest{Key: prefixStart, RangeEnd: prefixEnd, Limit: pageSize, Revision: revision, Serializable: weak}
	l := listing{asked: time.Now()}
	var last []byte // key of the pages so far
	keys, size := 0, 0
	pages := newPageReader()
	for first := true; ; first = false {
		resp, err := c.kv.Range(ctx, req, answersReadBy(pages)...)
		if err != nil {
			return listing{}, explain(ctx, err)
		}
		more()
		if first {
			l.cluster, l.revision, l.count = resp.Header.GetClusterId(), resp.Header.GetRevision(), resp.Count
			if revision != 0 {
				l.revision = revision // the header speaks of now, the keys of then
			}
			if room := min(max(l.count, 0), mostRoom); known == nil {
				l.kvs = make([]*mvccpb.KeyValue, 0, room)
			} else {
				l.known = make([]familiar, 0, room)
			}
		} else if resp.Header.GetClusterId() != l.cluster {
			return listing{}, failure{WentBack, fmt.Errorf("one list was answered by two clusters, %x and %x", l.cluster, resp.Header.GetClusterId())}
		}
		keys += len(resp.Kvs)
		for _, kv := range resp.Kvs {
			if bytes.Compare(kv.Key, last) <= 0 || !bytes.HasPrefix(kv.Key, prefixStart) {
				return listing{}, failure{Unable, fmt.Errorf("a list has key %s after %s: this is no answer of an etcd", registry.Quote(string(kv.Key)), registry.Quote(string(last)))}
			}
			last = kv.Key
			size += len(kv.Key) + len(kv.Value)
		}
		last = bytes.Clone(last)
		switch {
		case keys > maxKeys:
			return listing{}, tooManyKeys()
		case size > maxRegistry:
			return listing{}, tooLarge()
		}
		news := resp.Kvs
		if known != nil {
			news = known.sift(resp.Kvs, &l.known)
		} else {
			pages = newPageReader() // this one's page is kept
		}
		l.kvs = append(l.kvs, news...)
		d.add(news)
		if !resp.More || len(resp.Kvs) == 0 {
			l.at = time.Now()
			return l, nil
		}
		req.Key = append(last[:len(last):len(last)], 0) // the next key after it
		req.Revision = l.revision
	}
}

// isTooLarge reports whether gRPC has refused an answer for its size.
func isTooLarge(err error) bool {
	f, ok := errors.AsType[failure](err)
	return ok && f.cause == Unable && strings.Contains(f.Error(), "larger than max")
}

// A decoding is what a value says, or why it says nothing.
type decoding struct {
	key      string
	content  content
	warnings []registry.Warning
	err      error
}

// decodedAt returns what the value at i says, nil if it was not decoded.
func (l *listing) decodedAt(i int) *decoding {
	if l.decoded == nil {
		return nil
	}
	return &l.decoded[i]
}

// useless reports whether all values were decoded and none of them can be used.
func (l *listing) useless() bool {
	return len(l.decoded) > 0 && !slices.ContainsFunc(l.decoded, func(d decoding) bool { return d.err == nil })
}

func decode(key string, value []byte) decoding {
	d := decoding{key: key}
	var record registry.Record
	record, d.warnings, d.err = registry.Decode(key, value)
	d.content = content{record.Service, record.Endpoints}
	return d
}

// A decoder decodes the pages of a list on all processors: before the first state is in force nobody else
// needs them. (Later there are clients, and the few values that have changed are decoded one by one.)
// Nil decodes nothing.
type decoder struct {
	pages [][]decoding
	work  sync.WaitGroup
}

func (d *decoder) add(page []*mvccpb.KeyValue) {
	if d == nil {
		return
	}
	decoded := make([]decoding, len(page))
	d.pages = append(d.pages, decoded)
	d.work.Go(func() {
		for i, kv := range page {
			decoded[i] = decode(string(kv.Key), kv.Value)
		}
	})
}

// wait returns what all pages say.
func (d *decoder) wait() []decoding {
	if d == nil {
		return nil
	}
	d.work.Wait()
	return slices.Concat(d.pages...)
}

// newest asks for the revision that etcd has reached, as cheaply as can be: one key, which need not
// exist. The read is linearizable, so a member that was cut off cannot answer it.
func newest(ctx context.Context, c *client, _ func()) (listing, error) {
	resp, err := c.kv.Range(ctx, &etcdserverpb.RangeRequest{Key: prefixStart, CountOnly: true}, callOptions...)
	if err != nil {
		return listing{}, explain(ctx, err)
	}
	return listing{cluster: resp.Header.GetClusterId(), revision: resp.Header.GetRevision()}, nil
}

// changes asks for the state of a revision, but only for keys that were put after another, without
// their values. If there are none, and the count is right, nothing was changed between the two.
func changes(after, until int64) question {
	return func(ctx context.Context, c *client, _ func()) (listing, error) {
		resp, err := c.kv.Range(ctx, &etcdserverpb.RangeRequest{
			Key: prefixStart, RangeEnd: prefixEnd, Revision: until, MinModRevision: after + 1, KeysOnly: true,
		}, callOptions...)
		if err != nil {
			return listing{}, explain(ctx, err)
		}
		return listing{cluster: resp.Header.GetClusterId(), revision: until, count: resp.Count, kvs: resp.Kvs}, nil
	}
}

// An answer is what became of a question.
type answer struct {
	listing
	err error
}

// A reader puts one question at a time to etcd, in a goroutine, over a connection that it keeps
// between questions. Its methods are for the goroutine that owns it.
type reader struct {
	cfg     *dialer
	client  *client // nil: dial first. Belongs to the goroutine while busy
	busy    bool    // an answer is due
	answers chan answer

	received atomic.Int64 // bytes, over all connections
}

func newReader(cfg *dialer) *reader {
	return &reader{cfg: cfg, answers: make(chan answer, 1)}
}

// minProgress is how many bytes of an answer have to come within its time: more than the pings of a connection whose
// other end does nothing else.
const minProgress = 16 << 10

// ask puts a question; the answer comes over r.answers. The question fails when for the time given no part of the answer
// is complete and less than minProgress of it has come. The reader must not be busy.
//
// A limit for all parts together would be a trap for a fleet: after an outage all nodes list at once, each
// gets its share of what etcd can send, and should the sum take longer than the limit, every list
// is given up half-way and begun anew, for ever. The same goes for one part over a slow network.
func (r *reader) ask(ctx context.Context, timeout time.Duration, q question) {
	r.busy = true
	go func() {
		ctx, cancel := context.WithCancelCause(ctx)
		deadline := time.NewTimer(timeout)
		var watchdog sync.WaitGroup
		watchdog.Go(func() {
			for before := r.received.Load(); ; {
				select {
				case <-deadline.C:
				case <-ctx.Done():
					return
				}
				now := r.received.Load()
				if now-before < minProgress {
					cancel(fmt.Errorf("no answer for %v", timeout))
					return
				}
				before = now
				deadline.Reset(timeout)
			}
		})
		l, err := r.try(ctx, q, func() { deadline.Reset(timeout) })
		cancel(nil)
		watchdog.Wait()
		r.answers <- answer{l, err}
	}()
}

// try answers a question. A connection that was kept may have broken meanwhile, and its token may
// have expired, so a failure on it counts only if it happens again on a fresh one.
func (r *reader) try(ctx context.Context, q question, more func()) (listing, error) {
	for {
		fresh := r.client == nil
		if fresh {
			c, err := r.cfg.dial(ctx, &r.received)
			if err != nil {
				return listing{}, explain(ctx, err)
			}
			r.client = c
		}
		l, err := q(ctx, r.client, more)
		if err == nil || errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, rpctypes.ErrFutureRev) {
			return l, err // the two are answers
		}
		r.client.close()
		r.client = nil
		if fresh || ctx.Err() != nil {
			return listing{}, err
		}
	}
}

// take receives the answer that is due. The asker's context must have ended.
func (r *reader) take() {
	if r.busy {
		<-r.answers
		r.busy = false
	}
}

// close ends the connection that was kept.
func (r *reader) close() {
	if r.client != nil {
		r.client.close()
		r.client = nil
	}
}
