package main

import (
	"context"
	"encoding/gob"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/netip"
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

// The node is the proxy under test, as a process of its own: it can be paused, and built with a
// deliberate fault. Its rooms are wired as kube-proxy's are. Between source and Mux stands a tee which
// reports every Update, and behind the proxier a second handler, which sees what the proxier has
// been given.
//
//	etcd ─▶ source ─▶ tee ─▶ Mux ─▶ Broadcaster ─▶ Proxier, witness ─▶ sockets
//	                   └──────────── reports ──────────────────┘
//
// Orders come in on stdin, reports leave on stdout, both in gob (see wire.go); the log goes to stderr.
type node struct {
	source  *etcdsource.Source
	proxier *proxy.Proxier

	mu      sync.Mutex // guards the fields below
	reports *gob.Encoder
	err     error // nobody reads the reports any more
	held    serving
}

// A nodeConfig is the first value that a node reads.
type nodeConfig struct {
	Address            netip.Addr
	Endpoints          []string
	Username, Password string
	SyncPeriod         time.Duration
	PageSize           int64
}

// An order asks for a report.
type order struct {
	Number int
	Free   bool // give memory back to the system first
	Brief  bool // leave out what is held
}

// A report is what a node says of itself. Exactly one of its pointers is set.
type report struct {
	At      time.Time
	Update  *registry.Update // handed to the Mux at this moment
	Settled *int             // the handlers have been given the settled service, with this port
	Answer  *answer
}

// An answer is what an order asked for.
type answer struct {
	Number      int
	held        serving // which travels as text
	Ports       []portState
	Source      config.Status
	Resident    int64 // bytes
	Live        int64 // bytes of the heap in use; after a collection when memory was given back first
	Descriptors int
	Goroutines  int
}

// A serving is the sum of all batches.
type serving struct {
	Services  map[registry.Name]*registry.Service
	Endpoints map[registry.Name]*registry.Endpoints
}

// A portState is a [proxy.PortStatus] fit for gob.
type portState struct {
	Protocol registry.Protocol
	Port     uint16
	Claims   []registry.PortKey // the owner first
	Err      string
}

// runNode is the life of a node. It ends with its stdin.
func runNode(verbosity int) error {
	if err := errors.Join(flag.Set("logtostderr", "true"), flag.Set("v", strconv.Itoa(verbosity))); err != nil { // glog's
		return err
	}
	orders := gob.NewDecoder(os.Stdin)
	var cfg nodeConfig
	if err := orders.Decode(&cfg); err != nil {
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
				BindAddress:      cfg.Address, // A loopback that is flooded, as it is after a pause, loses packets, and a lost SYN costs a
				DialTimeout:      clientPatience / 3,
				DialTotalTimeout: clientPatience - time.Second,
			},
		}, balancer),
		reports: gob.NewEncoder(os.Stdout),
		held:    serving{make(map[registry.Name]*registry.Service), make(map[registry.Name]*registry.Endpoints)},
	}
	broadcaster := config.NewBroadcaster()
	broadcaster.Add(n.proxier, n)
	mux := config.NewMux(broadcaster)
	told := mux.Channel("etcd")
	updates := make(chan registry.Update)

	g, ctx := errgroup.WithContext(context.Background())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g.Go(func() error { return source.Run(ctx, updates) })
	g.Go(func() error { return n.tee(ctx, updates, told) })
	g.Go(func() error { return mux.Run(ctx) })
	g.Go(func() error { return n.proxier.Run(ctx) })
	go func() { // ends with the process: nothing can interrupt the read
		defer stop()
		for {
			var o order
			if err := orders.Decode(&o); err != nil {
				return
			}
			n.obey(o)
		}
	}()
	return g.Wait()
}

// tee reports each Update, and then hands it on.
func (n *node) tee(ctx context.Context, from <-chan registry.Update, to chan<- registry.Update) error {
	for {
		select {
		case u := <-from:
			if err := n.report(report{Update: &u}); err != nil {
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

// OnUpdate implements [config.Handler]: the node is its own witness, after the proxier.
func (n *node) OnUpdate(batch registry.Batch) {
	n.mu.Lock()
	keep(n.held.Services, batch.Services)
	keep(n.held.Endpoints, batch.Endpoints)
	n.mu.Unlock()
	if s := batch.Services[settled]; s != nil && len(s.Ports) == 1 {
		port := int(s.Ports[0].Number)
		_ = n.report(report{Settled: &port}) // the tee notices when nobody listens any more
	}
}

func keep[T any](all, changed map[registry.Name]*T) {
	maps.Copy(all, changed)
	for name, value := range changed {
		if value == nil {
			delete(all, name)
		}
	}
}

// settled is the service whose change marks a quiet point.
var settled = registry.Name{Namespace: registry.DefaultNamespace, Name: strings.TrimPrefix(truth.SettledKey, registry.SpecsPrefix)}

func (n *node) report(r report) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.At = time.Now()
	if n.err == nil {
		n.err = n.reports.Encode(wire(r))
	}
	return n.err
}

func (n *node) obey(o order) {
	if o.Free {
		debug.FreeOSMemory()
	}
	a := &answer{Number: o.Number, Source: n.source.Status(), Goroutines: runtime.NumGoroutine()}
	a.Resident, a.Descriptors = resources()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	a.Live = int64(stats.HeapAlloc)
	if !o.Brief {
		for _, p := range n.proxier.Status() {
			s := portState{Protocol: p.Protocol, Port: p.Port, Claims: append([]registry.PortKey{p.Owner}, p.Waiting...)}
			if p.Err != nil {
				s.Err = p.Err.Error()
			}
			a.Ports = append(a.Ports, s)
		}
		n.mu.Lock()
		a.held = serving{maps.Clone(n.held.Services), maps.Clone(n.held.Endpoints)}
		n.mu.Unlock()
	}
	_ = n.report(report{Answer: a}) // the tee notices when nobody listens any more
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
