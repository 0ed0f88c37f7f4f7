package faults

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
)

// TestAPagedListIsCompactedInTheMiddle: a client that lists as the source does, while the fault lasts, has
// the revision of its first page taken away.
func TestAPagedListIsCompactedInTheMiddle(t *testing.T) {
	c, _ := begin(t, 1)
	page := c.Source().PageSize
	direct, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	for i := range 10 * page {
		if _, err := direct.Put(t.Context(), fmt.Sprintf("%s%03d", registry.SpecsPrefix, i), "1"); err != nil {
			t.Fatal(err)
		}
	}
	write(t, c)
	client := clientOf(t, c.Cluster)
	var compacted atomic.Bool
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			key, revision := registry.Prefix, int64(0)
			for {
				r, err := client.Get(t.Context(), key, clientv3.WithRange(clientv3.GetPrefixRangeEnd(registry.Prefix)),
					clientv3.WithLimit(page), clientv3.WithRev(revision))
				if errors.Is(err, rpctypes.ErrCompacted) && revision != 0 {
					compacted.Store(true)
				}
				if err != nil || !r.More {
					break
				}
				key = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
				if revision == 0 {
					revision = r.Header.Revision
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for n := uint64(1); n <= 20 && !compacted.Load(); n++ { // whether a compaction comes between two pages is chance
		inject(t, c, "compact-list", seed(n))
	}
	close(stop)
	<-done
	if !compacted.Load() {
		t.Error("every list came to its end")
	}
}

// TestTheProxyIsAsleepWhenHistoryGoes: what it would go on from has been compacted when it wakes up.
func TestTheProxyIsAsleepWhenHistoryGoes(t *testing.T) {
	c, h := begin(t, 1)
	before := write(t, c)
	inject(t, c, "compact-asleep", seed(1))
	if h.paused != 1 || h.resumed != 1 {
		t.Errorf("the proxy was stopped %d times, and resumed %d times", h.paused, h.resumed)
	}
	direct, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	if _, err := direct.Get(t.Context(), "/", clientv3.WithRev(before)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("revision %d: %v; want it to be compacted", before, err)
	}
}
