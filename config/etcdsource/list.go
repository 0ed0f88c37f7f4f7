package etcdsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config/etcdsource/events"
	"kubeproxy/config/etcdsource/pages"
	"kubeproxy/config/records"
	"kubeproxy/config/remote"
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
	revision int64            // the keys are of this revision
	count    int64            // how many keys there are, listed or not
	list     records.List     // the keys, if they were asked for
	unread   map[string]error // of the other keys that were asked for, those that cannot be read
	changed  int              // of a question for changes: how many keys there are
	asked    time.Time        // when the first page was asked for: everything from before is in the list
	at       time.Time        // when the answer was complete
}

// What one list may hold. An etcd that sends more is wrong or hostile: the default quota of its whole
// history is 2 GiB, and 10,000 services take 10 MiB.
const (
	maxKeys      = 1 << 20
	maxRegistry  = 512 << 20 // bytes of keys and values
	maxSnapshots = 21        // how many more one list may take: pages that double so often hold more keys than a registry may have
	mostRoom     = 1 << 16   // keys that room is made for on etcd's word alone
)

func tooManyKeys() error {
	return remote.Because(Unable, fmt.Errorf("more than %d keys below %s: too many for a proxy", maxKeys, registry.Prefix))
}

func tooLarge() error {
	return remote.Because(Unable, fmt.Errorf("more than %d MiB of keys and values below %s: too much for a proxy", maxRegistry>>20, registry.Prefix))
}

// A question is put to etcd with a client that may be used for nothing else meanwhile. It calls more
// whenever a part of the answer is in: the next part has as much time again.
type question func(ctx context.Context, c *client, more func()) (listing, error)

// list asks for all keys at one revision, 0 for the newest. However long it takes, the answer is one
// snapshot: every page is read at the revision of the first, and so is what the other keys hold. begin makes the list that the keys are added to, with room
// for so many. Where etcd has streams the keys come in one, unless pages are wanted that are smaller than usual.
func list(revision int64, weak bool, pageSize int64, streams bool, holders []string, begin func(keys int) records.List) question {
	return func(ctx context.Context, c *client, more func()) (listing, error) {
		for left := maxSnapshots; ; left-- {
			ask := c.pages
			if streams = streams && !c.streamless; streams {
				ask = c.stream
			}
			l, err := ask(ctx, &etcdserverpb.RangeRequest{Key: prefixStart, RangeEnd: prefixEnd, Limit: pageSize, Revision: revision, Serializable: weak}, more, begin)
			l.list.Wait()
			if err == nil {
				err = c.holders(ctx, &l, holders, more)
			}
			switch {
			case left == 0:
				return l, err
			case errors.Is(err, errNoStreams):
				c.streamless = true
			case streams && ctx.Err() == nil && (isTooLarge(err) || errors.Is(err, rpctypes.ErrCompacted) && revision == 0):
				streams = false // pages can be made as small, or as large, as it takes
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

// pages asks for the keys in pages of req.Limit.
func (c *client) pages(ctx context.Context, req *etcdserverpb.RangeRequest, more func(), begin func(keys int) records.List) (l listing, err error) {
	l.asked = time.Now()
	reader, keys := pages.NewReader(), new(gathering)
	for first := true; ; first = false {
		resp, err := c.kv.Range(ctx, req, answersReadBy(reader)...)
		if err != nil {
			return l, explain(ctx, err)
		}
		more()
		if first {
			l.isOf(resp, req)
			l.list = begin(int(min(max(l.count, 0), mostRoom)))
		} else if err := l.sameCluster(resp.Header); err != nil {
			return l, err
		}
		if err := keys.addTo(&l.list, resp.Kvs); err != nil {
			return l, err
		}
		if !resp.More || len(resp.Kvs) == 0 {
			l.at = time.Now()
			return l, nil
		}
		req.Key = append(keys.last[:len(keys.last):len(keys.last)], 0) // the next key after it
		req.Revision = l.revision
	}
}

// isOf takes from an answer of which cluster and revision the list is, and how many keys there are.
func (l *listing) isOf(resp *etcdserverpb.RangeResponse, req *etcdserverpb.RangeRequest) {
	l.cluster, l.revision, l.count = resp.Header.GetClusterId(), resp.Header.GetRevision(), resp.Count
	if req.Revision != 0 {
		l.revision = req.Revision // the header speaks of now, the keys of then
	}
}

// sameCluster has every further part of a list come from the cluster of its first: the members that are asked may be of several, by mistake.
func (l *listing) sameCluster(header *etcdserverpb.ResponseHeader) error {
	if id := header.GetClusterId(); id != l.cluster {
		return remote.Because(WentBack, fmt.Errorf("one list was answered by two clusters, %x and %x", l.cluster, id))
	}
	return nil
}

// maxHolderKeys bounds how many keys records may name.
const maxHolderKeys = 1000

// rangeEnd ends the range of a key, and of all keys below it if it ends with a slash.
func rangeEnd(key string) []byte {
	if !strings.HasSuffix(key, "/") {
		return nil
	}
	return []byte(clientv3.GetPrefixRangeEnd(key))
}

// errManyBelow is why a key is not read that ends with a slash.
var errManyBelow = fmt.Errorf("more than %d keys are below it", 2*maxHolderKeys)

// holders adds to a list what keys say, as of its revision. A key that cannot be read, as others can, is noted.
func (c *client) holders(ctx context.Context, l *listing, keys []string, more func()) error {
	l.unread = make(map[string]error)
	for _, key := range keys {
		says, err := c.holder(ctx, key, l, more)
		switch {
		case err == nil:
			l.list.AddHolders(key, says)
		case errors.Is(err, rpctypes.ErrPermissionDenied), isTooLarge(err), errors.Is(err, errManyBelow):
			l.unread[key] = err
		default:
			return err
		}
	}
	return nil
}

// holder returns what a key says, as of the revision of a list. Pages are small: 16 of the largest values that etcd takes by default fit into a message.
func (c *client) holder(ctx context.Context, key string, of *listing, more func()) (says []records.Holder, err error) {
	req := &etcdserverpb.RangeRequest{Key: []byte(key), RangeEnd: rangeEnd(key), Revision: of.revision, Limit: 16}
	for {
		resp, err := c.kv.Range(ctx, req, callOptions...)
		if err != nil {
			return nil, explain(ctx, err)
		} else if err := of.sameCluster(resp.Header); err != nil {
			return nil, err
		}
		more()
		for _, kv := range resp.Kvs {
			says = append(says, events.HolderOf(&mvccpb.Event{Kv: kv}))
			req.Key = append(kv.Key, 0) // the next key after it
		}
		if len(resp.Kvs) == 0 || !resp.More {
			return says, nil
		} else if len(says) >= 2*maxHolderKeys {
			return nil, errManyBelow
		}
	}
}

// A gathering is the keys of a list that have come so far.
type gathering struct {
	last []byte // key
	size int    // bytes
	page []records.Version
}

// addTo adds some more keys, which have to come in order, within the bounds of a list.
func (g *gathering) addTo(list *records.List, kvs []*mvccpb.KeyValue) error {
	g.page = g.page[:0]
	last := g.last
	for _, kv := range kvs {
		if bytes.Compare(kv.Key, last) <= 0 || !bytes.HasPrefix(kv.Key, prefixStart) {
			return remote.Because(Unable, fmt.Errorf("a list has key %s after %s: this is no answer of an etcd", registry.Quote(string(kv.Key)), registry.Quote(string(last))))
		}
		last = kv.Key
		g.size += len(kv.Key) + len(kv.Value)
		g.page = append(g.page, events.VersionOf(kv))
	}
	g.last = bytes.Clone(last)
	switch {
	case list.Len()+len(g.page) > maxKeys:
		return tooManyKeys()
	case g.size > maxRegistry:
		return tooLarge()
	}
	list.Add(g.page)
	return nil
}

// isTooLarge reports whether gRPC has refused an answer for its size.
func isTooLarge(err error) bool {
	return causeOf(err) == Unable && strings.Contains(err.Error(), "larger than max")
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

// reached asks a member for its own revision, whatever the others have reached; 0 when it does not say in time. A process that was stopped comes
// back with a token that may have expired: refused, it logs in anew and asks again. If etcd still refuses, 0 keeps the watch, which needs no token.
func (c *client) reached(ctx context.Context, timeout time.Duration) int64 {
	ask := func() (int64, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		resp, err := c.kv.Range(ctx, &etcdserverpb.RangeRequest{Key: prefixStart, CountOnly: true, Serializable: true}, callOptions...)
		return resp.GetHeader().GetRevision(), explain(ctx, err)
	}
	revision, err := ask()
	if causeOf(err) == Refused && c.login != nil && c.login(ctx) == nil {
		revision, _ = ask()
	}
	return revision
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
		return listing{cluster: resp.Header.GetClusterId(), revision: until, count: resp.Count, changed: len(resp.Kvs)}, nil
	}
}

// An answer is the result of a question.
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
