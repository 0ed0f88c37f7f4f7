//go:build linux

package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/measure"
)

// A fleet is many who follow one etcd.
type fleet interface {
	String() string
	size() int
	// start starts them all, and waits until each has everything. It gives how long that took each.
	start(ctx context.Context, etcd string, syncPeriod time.Duration) ([]time.Duration, error)
	// served waits until each has the change. It gives when that was.
	served(ctx context.Context, c change) ([]time.Duration, error)
	resyncs(ctx context.Context) (float64, error) // that all of them have made since the start
	pids() []int
	stop()
}

// A change is a put to the canary.
type change struct {
	revision      int64
	set           byte
	put, answered time.Duration // since the machine has started
}

// patience bounds every wait for a fleet.
const patience = 3 * time.Minute

// nodes is a fleet of kube-proxies.
type nodes struct {
	n        int
	binary   string
	dir      string
	services int
	canary   *canary
	nice     int

	running []*node
	lookout *lookout
}

// A node is one of them.
type node struct {
	*process.Process
	host   netip.Addr
	notify *net.UnixConn
	ready  atomic.Int64 // when it said so, since the machine has started; 0: not yet
}

// maxNodes is how many have addresses of their own in nodeHost.
const maxNodes = 1000

// operators is where it tells of itself: no service may have that port, and all from firstPort on are taken.
func (n *node) operators() netip.AddrPort { return netip.AddrPortFrom(n.host, firstPort-1) }

func nodeHost(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 7, byte(i / 250), byte(1 + i%250)})
}

func (f *nodes) String() string { return fmt.Sprintf("%d nodes", f.n) }
func (f *nodes) size() int      { return f.n }

func (f *nodes) start(ctx context.Context, etcd string, syncPeriod time.Duration) ([]time.Duration, error) {
	began := measure.SinceBoot()
	for i := range f.n {
		n, err := f.launch(i, etcd, syncPeriod)
		if err != nil {
			return nil, err
		}
		f.running = append(f.running, n)
	}
	took := make([]time.Duration, f.n)
	for i, n := range f.running {
		if err := n.Await(patience, func() bool { return n.ready.Load() > 0 || ctx.Err() != nil }); err != nil {
			return nil, err
		}
		took[i] = time.Duration(n.ready.Load()) - began
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	open, err := f.sum(ctx, "kubeproxy_listeners")
	if err == nil && open != float64(f.n*(f.services+1)) {
		err = fmt.Errorf("%v have opened %v ports; want %d each: is one of them taken?", f, open, f.services+1)
	}
	if err != nil {
		return nil, err
	}
	var at []netip.AddrPort
	for _, n := range f.running {
		at = append(at, netip.AddrPortFrom(n.host, uint16(f.canary.port)))
	}
	f.lookout = watchNodes(at)
	_, err = f.served(ctx, change{set: f.canary.now})
	return took, err
}

// launch starts one of them. It says itself when it is ready, as to a service manager (sd_notify(3)), so that
// nobody has to ask.
func (f *nodes) launch(i int, etcd string, syncPeriod time.Duration) (*node, error) {
	n := &node{host: nodeHost(i)}
	name := fmt.Sprintf("node%d", i)
	socket := filepath.Join(f.dir, name)
	err := os.Remove(socket) // of the one before
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if n.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"}); err != nil {
		return nil, err
	}
	go func() {
		for buf := make([]byte, 1000); ; {
			size, err := n.notify.Read(buf)
			if err != nil {
				return // it was closed
			}
			if strings.Contains(string(buf[:size]), "READY=1") {
				n.ready.Store(int64(measure.SinceBoot()))
			}
		}
	}()
	n.Process, err = process.Start(f.dir, name, "nice", "-n", strconv.Itoa(f.nice), "env", "NOTIFY_SOCKET="+socket, f.binary, "-logtostderr",
		"-etcd_servers="+etcd, fmt.Sprintf("-config_sync_period=%v", syncPeriod), fmt.Sprintf("-bind_address=%v", n.host),
		"-metrics_bind_address="+n.operators().String(), "-healthz_bind_address=", "-drain_timeout=0", "-on_removal=close")
	if err != nil {
		n.notify.Close()
		return nil, err
	}
	return n, nil
}

func (f *nodes) served(ctx context.Context, c change) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("a change is not served by all of %v after %v", f, patience))
	defer cancel()
	at := make([]time.Duration, f.n)
	for missing := f.n; missing > 0; {
		select {
		case s := <-f.lookout.seen:
			if s.set == c.set && s.at > c.put && at[s.node] == 0 {
				at[s.node] = s.at
				missing--
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return at, nil
}

func (f *nodes) resyncs(ctx context.Context) (float64, error) {
	return f.sum(ctx, "kubeproxy_etcd_resyncs_total")
}

// sum adds up a metric of all nodes.
func (f *nodes) sum(ctx context.Context, name string) (float64, error) {
	total := 0.0
	for _, n := range f.running {
		all, err := measure.Scrape(ctx, n.operators())
		if err != nil {
			return 0, fmt.Errorf("node at %v: %w", n.host, err)
		}
		total += all.Sum(name)
	}
	return total, nil
}

func (f *nodes) pids() []int {
	var all []int
	for _, n := range f.running {
		all = append(all, n.PID())
	}
	return all
}

func (f *nodes) stop() {
	if f.lookout != nil {
		f.lookout.close()
		f.lookout = nil
	}
	var all sync.WaitGroup
	for _, n := range f.running {
		all.Go(func() {
			n.Stop()
			n.notify.Close()
		})
	}
	all.Wait()
	f.running = nil
}
