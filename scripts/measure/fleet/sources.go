//go:build linux

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"kubeproxy/config"
	"kubeproxy/config/apisource"
	"kubeproxy/config/etcdsource"
	"kubeproxy/internal/process"
	"kubeproxy/registry"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// sources is a fleet of sources, all in one process of their own: what they cost etcd, or an API server, is what as
// many nodes cost it.
type sources struct {
	n    int
	way  string
	site *measure.Site
	nice int

	process *process.Process
	talk    net.Conn
	serial  int // of sockets
}

// An order is what the process of the sources is told. Each but the first is answered.
type order struct {
	Etcd       string        `json:",omitempty"` // the first: what to follow, by how many; of Etcd and Server one
	Server     string        `json:",omitempty"` // an API server
	Count      int           `json:",omitempty"`
	SyncPeriod time.Duration `json:",omitempty"`

	Await   int64 `json:",omitempty"` // say when each had come to this revision, once all have
	Resyncs bool  `json:",omitempty"` // say how many there were
}

// An answer is what it says.
type answer struct {
	At      []time.Duration `json:",omitempty"` // since the machine has started
	Resyncs uint64
}

func (f *sources) String() string { return fmt.Sprintf("%d sources", f.n) }
func (f *sources) size() int      { return f.n }

func (f *sources) start(ctx context.Context, etcd string, syncPeriod time.Duration) (_ []time.Duration, err error) {
	defer try.Catch(&err)
	f.serial++
	socket := filepath.Join(f.site.Dir, fmt.Sprintf("sources%d-%d", f.n, f.serial))
	l := try.Get(net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"}))
	defer l.Close()
	f.process = try.Get(process.Start(f.site.Dir, filepath.Base(socket)+"-process", "nice", "-n", strconv.Itoa(f.nice), f.site.Executable, "sources", socket))
	try.Do(l.SetDeadline(time.Now().Add(10 * time.Second)))
	f.talk = try.Get(l.AcceptUnix())
	began := measure.SinceBoot()
	try.Do(f.follow(etcd, syncPeriod))
	at, err := f.served(ctx, change{revision: 1})
	for i := range at {
		at[i] -= began
	}
	return at, err
}

// follow gives the first order.
func (f *sources) follow(url string, syncPeriod time.Duration) error {
	o := order{Etcd: url, Count: f.n, SyncPeriod: syncPeriod}
	if f.way == apiServer {
		o.Etcd, o.Server = "", url
	}
	return json.NewEncoder(f.talk).Encode(o)
}

func (f *sources) served(ctx context.Context, c change) ([]time.Duration, error) {
	a, err := f.ask(ctx, order{Await: c.revision})
	return a.At, err
}

func (f *sources) resyncs(ctx context.Context) (float64, error) {
	a, err := f.ask(ctx, order{Resyncs: true})
	return float64(a.Resyncs), err
}

func (f *sources) ask(ctx context.Context, o order) (answer, error) {
	defer context.AfterFunc(ctx, func() { f.talk.Close() })()
	var a answer
	if err := f.talk.SetDeadline(time.Now().Add(patience)); err != nil {
		return a, err
	}
	err := json.NewEncoder(f.talk).Encode(o)
	if err == nil {
		err = json.NewDecoder(f.talk).Decode(&a)
	}
	if err != nil {
		return a, fmt.Errorf("the process of %v does not answer: %w", f, errors.Join(err, context.Cause(ctx)))
	}
	return a, nil
}

func (f *sources) pids() []int { return []int{f.process.PID()} }

func (f *sources) stop() {
	if f.talk != nil {
		f.talk.Close()
		f.talk = nil
	}
	if f.process != nil {
		f.process.Stop()
	}
}

// runSources is the process of the sources. It ends with the connection that its orders come over.
func runSources(socket string) (err error) {
	defer try.Catch(&err)
	try.Do(flag.Set("logtostderr", "true")) // glog's
	try.Get(measure.RaiseDescriptorLimit())
	conn := try.Get(net.Dial("unix", socket))
	defer conn.Close()
	return obey(conn)
}

// obey does what it is told.
func obey(conn io.ReadWriter) (err error) {
	defer try.Catch(&err)
	orders, answers := json.NewDecoder(conn), json.NewEncoder(conn)
	var o order
	try.Do(orders.Decode(&o))
	g, ctx := errgroup.WithContext(context.Background())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var h history
	h.changed.L = &h.mu
	h.of = make([][]step, o.Count)
	var all []config.Source
	for i := range o.Count {
		var s config.Source
		if o.Server != "" {
			s = try.Get(apisource.New(apisource.Config{Server: o.Server, SyncPeriod: o.SyncPeriod}))
		} else {
			s = try.Get(etcdsource.New(etcdsource.Config{Endpoints: []string{o.Etcd}, SyncPeriod: o.SyncPeriod}))
		}
		all = append(all, s)
		updates := make(chan registry.Update)
		g.Go(func() error { return s.Run(ctx, updates) })
		g.Go(func() error {
			for {
				select {
				case u := <-updates:
					h.note(i, u.Revision)
				case <-ctx.Done():
					return nil
				}
			}
		})
	}
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			break // standard input has ended
		}
		var a answer
		if o.Resyncs {
			for _, s := range all {
				a.Resyncs += s.Status().Resyncs
			}
		} else {
			a.At = h.await(o.Await)
		}
		if err := answers.Encode(a); err != nil {
			break
		}
	}
	stop()
	return g.Wait()
}

// A history is when each source came to which revision.
type history struct {
	mu      sync.Mutex // guards of
	changed sync.Cond
	of      [][]step
}

// A step of a source is an Update with news.
type step struct {
	revision int64
	at       time.Duration
}

func (h *history) note(source int, revision int64) {
	at := measure.SinceBoot()
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.of[source]); n == 0 || h.of[source][n-1].revision < revision {
		h.of[source] = append(h.of[source], step{revision, at})
		h.changed.Signal()
	}
}

// await waits until all have come to a revision, gives when each did, and forgets what was before.
func (h *history) await(revision int64) []time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := make([]time.Duration, len(h.of))
	for i := range h.of {
		for at[i] == 0 {
			for len(h.of[i]) > 1 && h.of[i][0].revision < revision {
				h.of[i] = h.of[i][1:]
			}
			if len(h.of[i]) > 0 && h.of[i][0].revision >= revision {
				at[i] = h.of[i][0].at
				continue
			}
			h.changed.Wait()
		}
	}
	return at
}
