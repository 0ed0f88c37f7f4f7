package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"kubeproxy/registry"
)

// patience bounds what should take a moment.
const patience = 30 * time.Second

// A quietStage is the experiment for one fault: a writer that writes when it is told to.
type quietStage struct {
	t       *testing.T
	cluster *cluster

	mu      sync.Mutex // guards the fields below
	newest  int64
	paused  int         // how often the proxy was stopped
	resumed int         // and sent on
	lines   []string    // of the log
	keeps   []int64     // of goBack
	during  func(n int) // called before each write, without the lock; may be nil
}

func (s *quietStage) goBack(ctx context.Context, stop func(context.Context) (int64, error), start func(context.Context) error) error {
	keep, err := stop(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.keeps = append(s.keeps, keep)
	s.newest = max(keep, 1)
	s.mu.Unlock()
	if keep == 0 {
		s.cluster.hide()
	}
	if err := start(ctx); err != nil {
		return err
	}
	return s.cluster.show()
}

func (s *quietStage) write(ctx context.Context, n int) error {
	if s.during != nil {
		s.during(n)
	}
	return s.cluster.do(ctx, "write", func(ctx context.Context, c *clientv3.Client) error {
		for i := range n {
			r, err := c.Put(ctx, registry.SpecsPrefix+"a", fmt.Sprint(i))
			if err != nil {
				return err
			}
			s.mu.Lock()
			s.newest = r.Header.Revision
			s.mu.Unlock()
		}
		return nil
	})
}

func (s *quietStage) head() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

func (s *quietStage) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

func (s *quietStage) pauseNode() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused++
}

func (s *quietStage) resumeNode() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resumed++
}

func (s *quietStage) logf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
	s.t.Logf(format, args...)
}

// begin starts a cluster for a test.
func begin(t *testing.T, members int) (*cluster, *quietStage) {
	t.Helper()
	s := &quietStage{t: t}
	c, err := startCluster(t.Context(), t.TempDir(), members, s)
	if err != nil {
		t.Fatal(err)
	}
	s.cluster = c
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := c.close(); err != nil {
			t.Errorf("close again: %v", err)
		}
	})
	return c, s
}

func seed(n uint64) *rand.Rand { return rand.New(rand.NewPCG(n, n)) }

func inject(t *testing.T, c *cluster, name string, r *rand.Rand) {
	t.Helper()
	f, err := find(name)
	if err != nil {
		t.Fatal(err)
	}
	if f.able != nil {
		if err := f.able(); err != nil {
			t.Skipf("this machine cannot have %s: %v", name, err)
		}
	}
	if err := f.inject(t.Context(), c, r); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// throughFaultProxies returns a client that takes the way of the proxy under test.
func throughFaultProxies(t *testing.T, c *cluster) *clientv3.Client {
	t.Helper()
	cfg := c.source()
	client, err := clientv3.New(clientv3.Config{Endpoints: cfg.Endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // only tells that its context has ended
	return client
}

// write writes one key past all fault proxies, and returns its revision.
func write(t *testing.T, c *cluster) int64 {
	t.Helper()
	if err := c.stage.write(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return c.stage.head()
}

// A listener hears what a watch on a connection of its own says.
type watching struct {
	client   *clientv3.Client
	revision chan int64 // of each event
}

func watchThrough(t *testing.T, c *cluster) *watching {
	t.Helper()
	w := &watching{throughFaultProxies(t, c), make(chan int64, 1000)}
	ready := make(chan struct{})
	ch := w.client.Watch(clientv3.WithRequireLeader(t.Context()), registry.Prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	go func() {
		for r := range ch {
			if r.Created {
				close(ready)
			}
			for _, e := range r.Events {
				w.revision <- e.Kv.ModRevision
			}
		}
	}()
	select {
	case <-ready:
	case <-time.After(patience):
		t.Fatal("no watch")
	}
	return w
}

func (w *watching) hears(t *testing.T, revision int64) {
	t.Helper()
	for {
		select {
		case got := <-w.revision:
			if got == revision {
				return
			}
		case <-time.After(patience):
			t.Fatalf("the watch has not heard of revision %d", revision)
		}
	}
}

func (w *watching) hearsNothing(t *testing.T) {
	t.Helper()
	select {
	case got := <-w.revision:
		t.Errorf("the watch heard of revision %d; want silence", got)
	case <-time.After(300 * time.Millisecond): // an event takes less than one
	}
}

func reads(t *testing.T, client *clientv3.Client, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_, err := client.Get(ctx, registry.Prefix, clientv3.WithPrefix())
	return err
}

// TestEveryFaultHealsItself: after each fault etcd answers through the fault proxies, nothing of the fault
// is left, and heal, which has nothing to do, does no harm. The small faults do so in each small run, and the
// long ones only last longer.
func TestEveryFaultHealsItself(t *testing.T) {
	for _, f := range faults {
		if f.small || f.members == 3 || strings.HasPrefix(f.name, "long-") {
			continue // of a cluster: see TestFaultsOfACluster
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			c, _ := begin(t, 1)
			write(t, c)
			inject(t, c, f.name, seed(1))
			if err := reads(t, throughFaultProxies(t, c), patience); err != nil {
				t.Errorf("after %s: %v", f.name, err)
			}
			if c.loss != nil || c.through != nil || c.disk != "" || c.hidden {
				t.Errorf("left behind: %+v", c)
			}
			if err := c.heal(); err != nil {
				t.Errorf("heal: %v", err)
			}
			write(t, c)
		})
	}
}

func TestFaultsOfACluster(t *testing.T) {
	c, s := begin(t, 3)
	write(t, c)
	for _, name := range []string{"kill-leader", "move-leader", "lose-member", "restore", "wipe"} {
		inject(t, c, name, seed(2))
		if err := reads(t, throughFaultProxies(t, c), patience); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
		write(t, c)
	}
	if !slices.ContainsFunc(s.lines, func(l string) bool { return strings.Contains(l, "hands on") }) {
		t.Errorf("no leader moved: %q", s.lines)
	}
}

// TestHealMendsWhatAnInterruptedFaultLeft: an inject whose context ends leaves a mess.
func TestHealMendsWhatAnInterruptedFaultLeft(t *testing.T) {
	c, _ := begin(t, 1)
	m := c.members[0]
	write(t, c)
	if err := c.enableAuth(t.Context()); err != nil {
		t.Fatal(err)
	}
	addr, err := c.startGRPCProxy()
	if err != nil {
		t.Fatal(err)
	}
	m.faultProxy.redirect(addr)
	m.faultProxy.setNew(deaf)
	c.hide()
	m.Kill()
	if err := c.heal(); err != nil {
		t.Fatal(err)
	}
	if err := reads(t, throughFaultProxies(t, c), patience); err != nil {
		t.Error(err)
	}
	if c.through != nil || m.faultProxy.target != m.Client {
		t.Error("the grpc-proxy is still in between")
	}
}

// TestNothingSurvivesClose: no process, no mount, no table; and with the directory, no file.
func TestNothingSurvivesClose(t *testing.T) {
	c, _ := begin(t, 1)
	write(t, c)
	if canMount() == nil {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := fillDisk(ctx, c, seed(1)); err == nil {
			t.Fatal("the disk was full for less than a second") // seed 1 draws more
		}
	}
	process := c.members[0].Process
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	if process.Running() == nil {
		t.Error("etcd is running")
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err == nil && strings.Contains(string(mounts), c.dir) {
		t.Error("the small disk is mounted")
	}
}
