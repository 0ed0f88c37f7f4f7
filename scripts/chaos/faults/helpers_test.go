package faults

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"kubeproxy/registry"
)

// stepTimeout bounds what takes a moment on a machine that is not busy.
const stepTimeout = 30 * time.Second

// newCluster starts a cluster, and closes it twice at the end of the test.
func newCluster(t *testing.T, members int) *Cluster {
	t.Helper()
	c, err := StartCluster(t.Context(), t.TempDir(), members)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("close again: %v", err)
		}
	})
	return c
}

// clientOf returns a client that connects through the fault proxies, as the proxy under test does.
func clientOf(t *testing.T, c *Cluster) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Source().Endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // it only reports that its context has ended
	return client
}

// readRegistry reads the registry within a time.
func readRegistry(t *testing.T, client *clientv3.Client, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_, err := client.Get(ctx, registry.Prefix, clientv3.WithPrefix())
	return err
}

// writeKey writes one key without the fault proxies, and returns its revision.
func writeKey(t *testing.T, c *Cluster) (revision int64) {
	t.Helper()
	err := c.Do(t.Context(), "write", func(ctx context.Context, client *clientv3.Client) error {
		r, err := client.Put(ctx, registry.SpecsPrefix+"a", "1")
		if err == nil {
			revision = r.Header.Revision
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// An openedWatch is a watch through the fault proxies, on a connection of its own.
type openedWatch struct {
	client    *clientv3.Client
	revisions chan int64 // of each event
}

// openWatch opens a watch of the registry.
func openWatch(t *testing.T, c *Cluster) *openedWatch {
	t.Helper()
	w := &openedWatch{clientOf(t, c), make(chan int64, 1000)}
	ready := make(chan struct{})
	ch := w.client.Watch(clientv3.WithRequireLeader(t.Context()), registry.Prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	go func() {
		for r := range ch {
			if r.Created {
				close(ready)
			}
			for _, e := range r.Events {
				w.revisions <- e.Kv.ModRevision
			}
		}
	}()
	select {
	case <-ready:
	case <-time.After(stepTimeout):
		t.Fatal("no watch")
	}
	return w
}

// Receives waits for the event of a revision.
func (w *openedWatch) Receives(t *testing.T, revision int64) {
	t.Helper()
	for {
		select {
		case got := <-w.revisions:
			if got == revision {
				return
			}
		case <-time.After(stepTimeout):
			t.Fatalf("the watch has not received revision %d", revision)
		}
	}
}

// ReceivesNothing fails the test if an event arrives within a third of a second. On an idle machine an event takes a millisecond.
func (w *openedWatch) ReceivesNothing(t *testing.T) {
	t.Helper()
	select {
	case got := <-w.revisions:
		t.Errorf("the watch received revision %d; want silence", got)
	case <-time.After(300 * time.Millisecond):
	}
}
