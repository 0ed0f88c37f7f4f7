package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
)

// A quietHarness is the run around one fault: its writer writes only when the fault asks for it.
type quietHarness struct {
	t       *testing.T
	cluster *Cluster

	mu      sync.Mutex // guards the fields below
	newest  int64
	paused  int         // how often the proxy was paused
	resumed int         // and continued
	lines   []string    // of the log
	keeps   []int64     // of GoBack
	during  func(n int) // called before each write, without the lock; may be nil
}

func (h *quietHarness) GoBack(ctx context.Context, stop func(context.Context) (int64, error), start func(context.Context) error) error {
	keep, err := stop(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.keeps = append(h.keeps, keep)
	h.newest = max(keep, 1)
	h.mu.Unlock()
	if keep == 0 {
		h.cluster.Hide()
	}
	if err := start(ctx); err != nil {
		return err
	}
	return h.cluster.Show()
}

func (h *quietHarness) Write(ctx context.Context, n int) error {
	if h.during != nil {
		h.during(n)
	}
	return h.cluster.Do(ctx, "write", func(ctx context.Context, c *clientv3.Client) error {
		for i := range n {
			r, err := c.Put(ctx, registry.SpecsPrefix+"a", fmt.Sprint(i))
			if err != nil {
				return err
			}
			h.mu.Lock()
			h.newest = r.Header.Revision
			h.mu.Unlock()
		}
		return nil
	})
}

func (h *quietHarness) Head() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest
}

func (h *quietHarness) log() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.lines)
}

func (h *quietHarness) PauseNode() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paused++
}

func (h *quietHarness) ResumeNode() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resumed++
}

func (h *quietHarness) Logf(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf(format, args...))
	h.t.Logf(format, args...)
}

// begin starts a cluster for a test.
func begin(t *testing.T, members int) (Target, *quietHarness) {
	t.Helper()
	h := &quietHarness{t: t, cluster: newCluster(t, members)}
	return Target{h.cluster, h}, h
}

func seed(n uint64) *rand.Rand { return rand.New(rand.NewPCG(n, n)) }

func inject(t *testing.T, c Target, name string, r *rand.Rand) {
	t.Helper()
	f, ok := Find(name)
	if !ok {
		t.Fatalf("there is no fault %q", name)
	}
	if err := f.Able(true); err != nil {
		t.Skipf("this machine cannot have %s: %v", name, err)
	}
	if err := f.Inject(t.Context(), c, r); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// write writes one key without the fault proxies, and returns its revision.
func write(t *testing.T, c Target) int64 {
	t.Helper()
	if err := c.Write(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return c.Head()
}

// TestEveryFaultHealsItself: after each fault etcd answers through the fault proxies, nothing of the fault is left, and Heal, which has
// nothing to do, does no harm. The small faults do so in each small run, and the long ones only last longer.
func TestEveryFaultHealsItself(t *testing.T) {
	for _, f := range all {
		if f.small || f.members == 3 || strings.HasPrefix(f.Name, "long-") {
			continue // of a cluster: see TestFaultsOfACluster
		}
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			c, _ := begin(t, 1)
			write(t, c)
			inject(t, c, f.Name, seed(1))
			if err := readRegistry(t, clientOf(t, c.Cluster), stepTimeout); err != nil {
				t.Errorf("after %s: %v", f.Name, err)
			}
			if left := c.LeftBehind(); left != "" {
				t.Errorf("left behind: %s", left)
			}
			if err := c.Heal(); err != nil {
				t.Errorf("heal: %v", err)
			}
			write(t, c)
		})
	}
}

func TestFaultsOfACluster(t *testing.T) {
	c, h := begin(t, 3)
	write(t, c)
	for _, name := range []string{"kill-leader", "move-leader", "lose-member", "restore", "wipe"} {
		inject(t, c, name, seed(2))
		if err := readRegistry(t, clientOf(t, c.Cluster), stepTimeout); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
		write(t, c)
	}
	if !slices.ContainsFunc(h.log(), func(l string) bool { return strings.Contains(l, "hands on") }) {
		t.Errorf("no leader moved: %q", h.log())
	}
}
