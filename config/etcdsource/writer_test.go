package etcdsource_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
)

// serialKey is written by every transaction, outside the prefix. A writer that lost its connection in
// the middle of a transaction reads there whether etcd committed it.
const serialKey = "/model/serial"

// settledKey is written when the source is to come to rest, with a good value, never the same.
const settledKey = registry.SpecsPrefix + "settled"

// The keys that the writer writes. Few names, so that they are changed, deleted and made again often;
// flat and namespaced keys that name the same object; keys that name none; and the neighbours of the
// prefix, which the source must not even hear of.
var (
	serviceKeys = append(keysBelow(registry.SpecsPrefix, "a", "b", "c", "d", "e", "f"),
		keysBelow(registry.SpecsPrefix, "default/a", "default/b", "default/c", "prod/a", "prod/b", "prod/g", "prod/h", "test/a")...)
	endpointsKeys = append(keysBelow(registry.EndpointsPrefix, "a", "b", "c", "d", "e", "f"),
		keysBelow(registry.EndpointsPrefix, "default/a", "default/b", "default/i", "prod/a", "prod/b", "prod/g", "prod/j", "test/a")...)
	strangeKeys = keysBelow(registry.Prefix, "", "specs", "specs/", "specs/x/", "specs//x", "specs/x/y/z", "endpoints/",
		"endpoints/default/a/b", "nodes/a", "specs-old/a", "endpoint/a", "specs/\xff\x00\n")
	outsideKeys = []string{"/registry/services", "/registry/services0", "/registry/services-x/specs/a", "/registry/service",
		"/registry/pods/a", "/registry/pods/b", "/registry/events/default/c", "registry/services/specs/a"}
	// The ranges that are deleted at once. None spares a key that a multi-key transaction may write
	// beside it, so each goes alone.
	ranges = []string{registry.SpecsPrefix + "prod/", registry.EndpointsPrefix + "default/", registry.SpecsPrefix + "d",
		registry.EndpointsPrefix, registry.Prefix}
)

func keysBelow(prefix string, names ...string) []string {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = prefix + name
	}
	return keys
}

// A writer makes random changes in a real etcd, one transaction after the other, and writes each down
// in the history with the revision that etcd gave it.
type writer struct {
	history *history
	client  *clientv3.Client
	random  *rand.Rand
	gate    sync.Mutex    // held for each transaction; who else holds it has the registry to himself
	beat    chan struct{} // one for each transaction made; its capacity is how far the writer may run ahead
	serial  int
	settles int

	moderate atomic.Bool // not at full speed
}

// run makes transactions until ctx is done. Its pace changes: the source has to be right when it can
// keep up and when it cannot.
func (w *writer) run(ctx context.Context, t *testing.T) {
	var pace time.Duration
	for n := 0; ctx.Err() == nil; n++ {
		if w.moderate.Load() {
			pace = 300 * time.Microsecond
		}
		time.Sleep(pace)
		w.gate.Lock() // also for the random numbers, which faults draw from too
		w.commit(ctx, t, w.change())
		if n%40 == 0 {
			pace = pick(w.random, []time.Duration{0, 0, time.Millisecond, 3 * time.Millisecond})
		}
		w.gate.Unlock()
		select {
		case w.beat <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

// commit makes one transaction and returns its revision. When etcd dies in the middle it waits until
// etcd is back and can say what became of it: the revision is 0 if nothing did.
func (w *writer) commit(ctx context.Context, t *testing.T, ops []op) int64 {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	w.serial++
	serial := strconv.Itoa(w.serial)
	resp, err := w.client.Txn(ctx).Then(etcdOps(ops, serial)...).Commit()
	var revision int64
	if err == nil {
		revision = resp.Header.Revision
	} else if revision = w.whatBecameOf(ctx, t, serial, err); revision == 0 {
		return 0
	}
	w.history.newest().commit(revision, ops)
	return revision
}

// whatBecameOf returns the revision at which a transaction was committed although its answer was
// lost, 0 if it was not. Etcd is never asked to commit it again, so what it says once it answers
// linearizable reads again is the end of it.
func (w *writer) whatBecameOf(ctx context.Context, t *testing.T, serial string, cause error) int64 {
	for ctx.Err() == nil {
		get, cancel := context.WithTimeout(ctx, time.Second)
		resp, err := w.client.Get(get, serialKey)
		cancel()
		switch {
		case err != nil:
			cause = err
		case len(resp.Kvs) == 1 && string(resp.Kvs[0].Value) == serial:
			return resp.Kvs[0].ModRevision
		default:
			return 0
		}
	}
	if context.Cause(ctx) != errStopped {
		t.Errorf("the writer got no answer from etcd: %v", cause)
	}
	return 0
}

// etcdOps translates a transaction for the client.
func etcdOps(ops []op, serial string) []clientv3.Op {
	out := []clientv3.Op{clientv3.OpPut(serialKey, serial)}
	for _, o := range ops {
		switch {
		case !o.remove:
			out = append(out, clientv3.OpPut(o.key, o.value))
		case o.end == "":
			out = append(out, clientv3.OpDelete(o.key))
		default:
			out = append(out, clientv3.OpDelete(o.key, clientv3.WithRange(o.end)))
		}
	}
	return out
}

// change invents the next transaction.
func (w *writer) change() []op {
	switch n := w.random.IntN(100); {
	case n < 45:
		return []op{w.put(w.anyKey())}
	case n < 55:
		return []op{{key: w.anyKey(), remove: true}}
	case n < 75: // several keys of both kinds, each put or deleted: all of it or nothing
		var ops []op
		for _, i := range w.random.Perm(len(serviceKeys) + len(endpointsKeys))[:2+w.random.IntN(7)] {
			key := slices.Concat(serviceKeys, endpointsKeys)[i]
			if w.random.IntN(3) == 0 {
				ops = append(ops, op{key: key, remove: true})
			} else {
				ops = append(ops, w.put(key))
			}
		}
		return ops
	case n < 78:
		prefix := ranges[min(w.random.IntN(len(ranges)*3/2), w.random.IntN(len(ranges)))]
		return []op{{key: prefix, end: clientv3.GetPrefixRangeEnd(prefix), remove: true}}
	case n < 84:
		return []op{{key: pick(w.random, strangeKeys), value: w.value(pick(w.random, serviceKeys)), remove: n == 83}}
	default:
		return []op{{key: pick(w.random, outsideKeys), value: w.value(pick(w.random, serviceKeys))}}
	}
}

func (w *writer) anyKey() string {
	if w.random.IntN(2) == 0 {
		return pick(w.random, serviceKeys)
	}
	return pick(w.random, endpointsKeys)
}

// put writes a value that stands in some relation to what is there: another one, the same bytes, the
// same meaning in other bytes, one that was there before, or one that does not decode.
func (w *writer) put(key string) op {
	versions := w.history.newest().keys[key]
	var now string
	if n := len(versions); n > 0 {
		now = versions[n-1].value
	}
	switch n := w.random.IntN(20); {
	case n < 2 && now != "":
		return op{key: key, value: now}
	case n < 4 && now != "":
		return op{key: key, value: " " + now}
	case n < 6 && len(versions) > 0:
		return op{key: key, value: pick(w.random, versions).value}
	case n < 10:
		return op{key: key, value: w.badValue(key)}
	}
	return op{key: key, value: w.value(key)}
}

// value invents a record that decodes, in one of the stored formats.
func (w *writer) value(key string) string {
	padding := ""
	if w.random.IntN(100) == 0 {
		padding = strings.Repeat("x", 30_000) // a page and a response may be large
	}
	number, v1 := 1+w.random.IntN(65535), w.random.IntN(2) == 0
	switch service := strings.HasPrefix(key, registry.SpecsPrefix); {
	case service && v1:
		return fmt.Sprintf(`{"kind":"Service","apiVersion":"v1","metadata":{"name":"x","annotations":{"p":%q}},"spec":{"ports":[`+
			`{"name":"a","port":%d,"protocol":"TCP"},{"name":"b","port":%d,"protocol":"UDP"}],"sessionAffinity":%q}}`,
			padding, number, number, pick(w.random, []string{"None", "ClientIP"}))
	case service:
		return fmt.Sprintf(`{"kind":"Service","id":"x","apiVersion":"v1beta1","port":%d,"protocol":%q,"selector":{"p":%q}}`,
			number, pick(w.random, []string{"TCP", "UDP"}), padding)
	case v1:
		return fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":"x","annotations":{"p":%q}},"subsets":[`+
			`{"addresses":[{"ip":"10.0.0.1"},{"ip":"10.0.1.%d"}],"ports":[{"name":"a","port":%d}]}]}`, padding, w.random.IntN(256), number)
	}
	var addrs []string // sometimes none: endpoints that nobody answers are a record like any other
	for i := range w.random.IntN(4) {
		addrs = append(addrs, fmt.Sprintf(`"10.1.%d.%d:%d"`, i, w.random.IntN(256), number))
	}
	return fmt.Sprintf(`{"kind":"Endpoints","id":"x","apiVersion":"v1beta1","endpoints":[%s]}`, strings.Join(addrs, ","))
}

func (w *writer) settled() op {
	w.settles++
	return op{key: settledKey, value: fmt.Sprintf(`{"kind":"Service","id":"settled","port":%d}`, 1+w.settles%65535)}
}

// badValue invents a value that is no record.
func (w *writer) badValue(key string) string {
	n := w.random.IntN(1000)
	whole := w.value(key)
	return pick(w.random, []string{"", "null", "{", "[]", "k8s\x00\n\x0c", fmt.Sprintf("not a record %d", n), whole[:len(whole)/2],
		fmt.Sprintf(`{"kind":"Pod","id":"p%d"}`, n), fmt.Sprintf(`{"kind":"Service","id":"x","port":%d}`, 70000+n)})
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }
