// Package clustertest starts the etcd of a chaos run for tests, and reads, writes and watches through its fault proxies.
package clustertest

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"kubeproxy/registry"
	"kubeproxy/scripts/chaos/cluster"
)

// Patience bounds what takes a moment on a machine that is not busy.
const Patience = 30 * time.Second

// Start starts a cluster, and closes it twice at the end of the test.
func Start(t *testing.T, members int) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Start(t.Context(), t.TempDir(), members)
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

// Client returns a client that connects through the fault proxies, as the proxy under test does.
func Client(t *testing.T, c *cluster.Cluster) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Source().Endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // it only reports that its context has ended
	return client
}

// Read reads the registry within a time.
func Read(t *testing.T, client *clientv3.Client, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_, err := client.Get(ctx, registry.Prefix, clientv3.WithPrefix())
	return err
}

// Write writes one key without the fault proxies, and returns its revision.
func Write(t *testing.T, c *cluster.Cluster) (revision int64) {
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

// A Watch is a watch through the fault proxies, on a connection of its own.
type Watch struct {
	Client    *clientv3.Client
	revisions chan int64 // of each event
}

// Open opens a watch of the registry.
func Open(t *testing.T, c *cluster.Cluster) *Watch {
	t.Helper()
	w := &Watch{Client(t, c), make(chan int64, 1000)}
	ready := make(chan struct{})
	ch := w.Client.Watch(clientv3.WithRequireLeader(t.Context()), registry.Prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
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
	case <-time.After(Patience):
		t.Fatal("no watch")
	}
	return w
}

// Receives waits for the event of a revision.
func (w *Watch) Receives(t *testing.T, revision int64) {
	t.Helper()
	for {
		select {
		case got := <-w.revisions:
			if got == revision {
				return
			}
		case <-time.After(Patience):
			t.Fatalf("the watch has not received revision %d", revision)
		}
	}
}

// ReceivesNothing fails the test if an event arrives within a third of a second. On an idle machine an event takes a millisecond.
func (w *Watch) ReceivesNothing(t *testing.T) {
	t.Helper()
	select {
	case got := <-w.revisions:
		t.Errorf("the watch received revision %d; want silence", got)
	case <-time.After(300 * time.Millisecond):
	}
}
