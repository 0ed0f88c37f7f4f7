package proxynode

import (
	"context"
	"encoding/gob"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource"
	"kubeproxy/config/etcdsource/truth"
	"kubeproxy/proxy"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/engine"
	"kubeproxy/registry"
)

// A node is the process itself.
type node struct {
	source  *etcdsource.Source
	proxier *proxy.Proxier

	mu      sync.Mutex // guards the fields below
	reports *gob.Encoder
	err     error // of the last write of a report
	held    State
}

// Run runs a node until the end of its standard input.
func Run(verbosity int) error {
	if err := errors.Join(flag.Set("logtostderr", "true"), flag.Set("v", strconv.Itoa(verbosity))); err != nil { // glog's
		return err
	}
	queries := gob.NewDecoder(os.Stdin)
	var cfg Config
	if err := queries.Decode(&cfg); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	source, err := etcdsource.New(etcdsource.Config{
		Endpoints:  cfg.Endpoints,
		Username:   cfg.Username,
		Password:   cfg.Password,
		SyncPeriod: cfg.SyncPeriod,
		PageSize:   cfg.PageSize,
	})
	if err != nil {
		return err
	}
	balancer := balance.NewLoadBalancerRR(true)
	n := &node{
		source: source,
		proxier: proxy.NewProxier(proxy.Config{
			Config: engine.Config{
				BindAddress: cfg.Address,
				// After a pause the loopback is flooded and loses packets, and each lost SYN costs a second or more.
				DialTimeout:      cfg.ClientTimeout / 3,
				DialTotalTimeout: cfg.ClientTimeout - time.Second,
			},
		}, balancer),
		reports: gob.NewEncoder(os.Stdout),
		held:    State{make(map[registry.Name]*registry.Service), make(map[registry.Name]*registry.Endpoints)},
	}
	broadcaster := config.NewBroadcaster()
	broadcaster.Add(n.proxier, n)
	mux := config.NewMux(broadcaster)
	merged := mux.Channel("etcd")
	updates := make(chan registry.Update)

	g, ctx := errgroup.WithContext(context.Background())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g.Go(func() error { return source.Run(ctx, updates) })
	g.Go(func() error { return n.tee(ctx, updates, merged) })
	g.Go(func() error { return mux.Run(ctx) })
	g.Go(func() error { return n.proxier.Run(ctx) })
	go func() { // it ends with the process: nothing can interrupt the read
		defer stop()
		for {
			var q wireQuery
			if err := queries.Decode(&q); err != nil {
				return
			}
			n.answer(q)
		}
	}()
	return g.Wait()
}

// tee reports each Update, and then passes it on.
func (n *node) tee(ctx context.Context, from <-chan registry.Update, to chan<- registry.Update) error {
	for {
		select {
		case u := <-from:
			if err := n.report(Report{Update: &u}); err != nil {
				return err
			}
			select {
			case to <- u:
			case <-ctx.Done():
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// OnUpdate implements [config.Handler]: the node records each batch, after the proxier.
func (n *node) OnUpdate(batch registry.Batch) {
	n.mu.Lock()
	apply(n.held.Services, batch.Services)
	apply(n.held.Endpoints, batch.Endpoints)
	n.mu.Unlock()
	if s := batch.Services[settled]; s != nil && len(s.Ports) == 1 {
		port := int(s.Ports[0].Number)
		_ = n.report(Report{Settled: &port}) // a lost reader also ends the tee
	}
}

func apply[T any](all, changed map[registry.Name]*T) {
	maps.Copy(all, changed)
	for name, value := range changed {
		if value == nil {
			delete(all, name)
		}
	}
}

// settled is the service whose change marks a quiet point.
var settled = registry.Name{Namespace: registry.DefaultNamespace, Name: strings.TrimPrefix(truth.SettledKey, registry.SpecsPrefix)}

func (n *node) report(r Report) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.At = time.Now()
	if n.err == nil {
		n.err = n.reports.Encode(encode(r))
	}
	return n.err
}

func (n *node) answer(q wireQuery) {
	if q.Free {
		debug.FreeOSMemory()
	}
	a := &Answer{Number: q.Number, Source: n.source.Status(), Goroutines: runtime.NumGoroutine()}
	a.Resident, a.Descriptors = resources()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	a.Live = int64(stats.HeapAlloc)
	if !q.Brief {
		for _, p := range n.proxier.Status() {
			s := PortState{Listener: p.ID, Claims: append([]registry.PortKey{p.Owner}, p.Waiting...)}
			if p.Err != nil {
				s.Err = p.Err.Error()
			}
			a.Ports = append(a.Ports, s)
		}
		n.mu.Lock()
		a.state = State{maps.Clone(n.held.Services), maps.Clone(n.held.Endpoints)}
		n.mu.Unlock()
	}
	_ = n.report(Report{Answer: a}) // a lost reader also ends the tee
}

// resources asks the kernel what this process has: see statm in proc(5).
func resources() (resident int64, descriptors int) {
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64) // zero shows in the figures
			resident = pages * int64(os.Getpagesize())
		}
	}
	if dir, err := os.Open("/proc/self/fd"); err == nil {
		names, _ := dir.Readdirnames(-1) // likewise
		descriptors = len(names) - 1     // one of them is dir
		_ = dir.Close()
	}
	return resident, descriptors
}
