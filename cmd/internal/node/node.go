package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang/glog"
	"golang.org/x/sync/errgroup"

	"kubeproxy/cmd/internal/connlog"
	"kubeproxy/cmd/internal/control"
	"kubeproxy/cmd/internal/fdstore"
	"kubeproxy/cmd/internal/history"
	"kubeproxy/cmd/internal/localhealth"
	"kubeproxy/cmd/internal/metrics"
	"kubeproxy/cmd/internal/operators"
	"kubeproxy/cmd/internal/statuspage"
	"kubeproxy/cmd/internal/statuspage/elections"
	"kubeproxy/cmd/internal/statuspage/recent"
	"kubeproxy/config"
	"kubeproxy/config/statefile"
	"kubeproxy/internal/takeover"
	"kubeproxy/proxy"
	"kubeproxy/proxy/anyip"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// Options says where the services come from, how they are served, and what operators are told.
type Options struct {
	Sources     []config.Source // in their order of precedence; one at least
	Proxy       proxy.Config
	RandomStart bool            // begin each rotation at a random endpoint
	Ready       func()          // called once, when the first state has been applied; may be nil
	Leaving     context.Context // ends when the node is told to stop: from then on it is not ready, and serves until Run's own context ends; nil: then
	Progress    func(string)    // told in one line what the node is doing or waits for, at first and whenever it changes; may be nil

	Routes *anyip.Routes // to addresses that services may have; nil for none

	FDStore *fdstore.Store // keeps listening sockets in case this process is killed, and has those of one that was; nil for none

	Takeover       string       // path of the socket at which a process asks its predecessor for all that it serves; empty for never
	HasPredecessor bool         // FindPredecessor has found one: until this process serves, or that one has ended, it speaks for the node
	TookOver       func()       // called when a take-over has succeeded, before the predecessor ends; may be nil
	Begin          func() error // called before the first state is applied, and before a take-over; an error ends Run; may be nil
	Outgoing       sync.Locker  // locked before a successor is given anything, and unlocked only if it does not take over; may be nil
	HandedOver     func()       // called once a successor serves, while this process may still drain; may be nil

	Control string // path of the socket by which operators ask and act; empty for none

	Watchdog time.Duration // how often the service manager wants to hear that the node is alive; 0 for never
	Alive    func()        // called twice as often, while /livez says yes

	Operators        operators.Config
	ConnectionLog    *connlog.Log             // to be run and written; nil for none
	PageToken        func() (string, error)   // the token with which the status page may act; nil: it is read-only
	ConnectionStarts bool                     // it also has a line when a client is given its endpoint
	ConfigMaxAge     time.Duration            // of what is served, before /readyz complains; 0 for any
	StateFile        *statefile.File          // keeps what is served, and has it when no source can be read at the start; nil for none
	MetricsEndpoints metrics.Choice           // services with series for each endpoint
	Version          Version                  // of the program
	Settings         func() map[string]string // what /configz shows of the command line

	UpgradeFailure func() (time.Time, error) // when the last upgrade failed, and why; nil for nothing
}

// A Version says which program this is.
type Version struct {
	Version   string `json:"version"`
	Revision  string `json:"revision"` // of the source
	TreeState string `json:"tree_state"`
	Go        string `json:"go"`
	Platform  string `json:"platform"`
}

// Run carries clients to services until ctx ends. Then it stops accepting, lets relays finish for
// [proxy.Config].DrainTimeout, and returns nil. After that nothing of it is running. Operators are
// answered until the last relay has ended, and the connection log is complete.
//
// With a predecessor at Options.Takeover, it begins with what that one serves. It ends like that once a successor serves, and then
// operators are the successor's, too.
func Run(ctx context.Context, o Options) error {
	if len(o.Sources) == 0 {
		return errors.New("there is no source to read services from")
	}
	if err := o.checkControl(); err != nil {
		return err
	}
	server, err := operators.Listen(o.Operators)
	if err != nil {
		return err
	}
	numbers := metrics.New(o.Version.Version, o.Version.Revision, o.MetricsEndpoints)
	o.Proxy.ReservedPorts = append(o.Proxy.ReservedPorts, server.Ports()...)
	endings := new(recent.Endings)
	applied := new(applied)
	o.Proxy.NoteLocal = o.ConnectionLog != nil
	o.Proxy.Ended = func(e traffic.Ending) {
		numbers.Ended(e)
		endings.Record(e)
		if o.ConnectionLog != nil {
			o.ConnectionLog.Record(e, applied.revision.Load())
		}
	}
	if o.ConnectionLog != nil && o.ConnectionStarts {
		o.Proxy.Began = func(e traffic.Ending) { o.ConnectionLog.RecordStart(e, applied.revision.Load()) }
	}
	balancer := balance.NewLoadBalancerRR(o.RandomStart)
	if o.FDStore != nil {
		o.Proxy.Keeper = o.FDStore
	}
	proxier := proxy.NewProxier(o.Proxy, balancer)

	leaving := o.Leaving
	if leaving == nil {
		leaving = ctx
	}
	changes := new(history.History)
	words := newKeeper(balancer)
	if o.StateFile != nil {
		words.dir = o.StateFile.Dir()
	}
	remember := control.Ended(changes)
	balancer.Tell(func(o balance.Override, why string) {
		remember(o, why)
		words.changed()
	})

	g, ctx := errgroup.WithContext(ctx)
	failed := make(chan error, 2) // one of the server, one of a take-over
	line := &succession{
		path:     o.Takeover,
		carrier:  proxier,
		server:   server,
		counters: numbers,
		words:    words,
		kept:     o.FDStore,
		tookOver: o.TookOver,
		first:    o.Begin,
		outgoing: o.Outgoing,
		released: o.HandedOver,
		failed:   func(err error) { failed <- err },
		ctx:      ctx,
		serving:  make(chan struct{}),
		alone:    make(chan struct{}),
	}
	if o.HasPredecessor {
		line.unwatch = background(ctx, func(ctx context.Context) { o.watch(ctx, line) })
		defer line.unwatch()
	} else {
		words.load()
	}

	defer o.answerFor(ctx, line)()

	// D8: v0.4 started its source before its handlers were there. The handlers come first here.
	broadcaster := config.NewBroadcaster()
	broadcaster.Add(numbers.Begin(), line, applied, numbers.End())
	broadcaster.Observe(changes.Observe)
	mux := config.NewMux(broadcaster)
	line.lacks = mux.Silent

	h := &health{
		leaving: leaving,
		drained: func() bool {
			_, drained := balancer.OverrideOf(registry.Name{}, registry.Addr{})
			return drained
		},
		stopping: ctx,
		started:  time.Now(),
		maxAge:   o.ConfigMaxAge,
		sources:  o.Sources,
		pending:  broadcaster.Pending,
		inHand:   numbers.Oldest,
		synced:   proxier.Synced(),
		ports:    proxier.Status,
		balancer: balancer,
		counts:   proxier.PortCounts,
		stalled:  proxier.Stalled,
		stale:    mux.Stale,
	}
	h.local = localhealth.New(o.Proxy.BindAddress, func() bool { _, err := h.ready(); return err == nil }, func(name registry.Name) int { return balancer.OnNode(proxier.Service(name)) })
	numbers.Watch(o.measured(h, proxier, balancer, line))
	page := statuspage.New(o.shown(h, proxier, balancer, endings, changes))
	defer page.Close()

	controlled := control.Node{
		Report: page.Report, ReportOf: page.ReportOf, History: changes, Proxier: proxier, Endpoints: balancer, Overrides: balancer.Overrides, Save: words.save,
	}

	// Who tells outlives what is told of: the relays end first, then the log, then the server.
	stopServer := background(ctx, func(ctx context.Context) {
		if !o.speaks(ctx, line) {
			server.Close()
			return
		}
		if err := server.Run(ctx, o.answers(h, numbers, proxier, balancer, page, controlled)); err != nil {
			failed <- err
		}
	})
	defer stopServer()
	if o.ConnectionLog != nil {
		defer background(ctx, o.ConnectionLog.Run)()
	}

	defer background(ctx, func(ctx context.Context) { words.run(ctx, line.serving) })()

	if o.Control != "" {
		defer background(ctx, func(ctx context.Context) {
			if o.speaks(ctx, line) {
				o.answerControl(ctx, controlled)
			}
		})()
	}

	if o.Watchdog > 0 {
		defer background(ctx, func(ctx context.Context) {
			if o.speaks(ctx, line) {
				h.keepAlive(ctx, o.Watchdog/2, func() {
					if !line.handedOver.Load() { // else it would hide that the successor hangs
						o.Alive()
					}
				})
			}
		})()
	}

	g.Go(func() error {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	})
	g.Go(func() error {
		if o.speaks(ctx, line) {
			h.report(ctx, line.serving, func(progress string) {
				if o.Progress != nil && !line.handedOver.Load() { // then its ports are the successor's
					o.Progress(progress)
				}
			}, o.Ready)
		}
		return nil
	})
	for _, source := range o.Sources {
		updates := mux.Channel(source.Name())
		g.Go(func() error { return source.Run(ctx, updates) })
	}
	if o.StateFile != nil {
		broadcaster.Add(o.StateFile)
		mux.Fallback(func() (registry.Update, bool) { return h.fallBack(o.StateFile) })
		g.Go(func() error {
			o.StateFile.Run(ctx, func() time.Time {
				if !line.serves() {
					return time.Time{} // the file is the predecessor's, or the successor's
				}
				return h.current()
			})
			return nil
		})
	}
	if o.Proxy.Node.Name != "" {
		broadcaster.Add(h.local)
		g.Go(func() error {
			h.local.Run(ctx)
			return nil
		})
	}
	if o.HasPredecessor {
		mux.Served(func(ctx context.Context, sources []string) bool { return serves(ctx, o.Takeover, sources) })
	}
	g.Go(func() error { return mux.Run(ctx) })
	g.Go(func() error { return line.runCarrier(ctx, proxier.Run) })
	if o.Takeover != "" {
		g.Go(func() error { return line.run(ctx, stopServer) })
	}
	if err := g.Wait(); !errors.Is(err, errHandedOver) {
		return err
	}
	return nil
}

// FindPredecessor reports whether there is a process to take over from at the socket of this path, which may be empty. While that process hands
// over to another one, FindPredecessor waits for its turn.
func FindPredecessor(ctx context.Context, path string) (bool, error) {
	if path == "" {
		return false, nil
	}
	if err := takeover.Check(path); err != nil {
		return false, fmt.Errorf("-takeover: %w", err)
	}
	switch err := takeover.Waits(ctx, path); {
	case errors.Is(err, takeover.ErrNobody):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("-takeover: %s: %w", path, err)
	}
	glog.Infof("a process waits for its successor at %s: this process takes over once it has read the first state", path)
	return true, nil
}

// speaks waits until this process speaks for the node, to operators and to the service manager: its predecessor does until this process serves, or
// until that one has ended. It returns false if ctx ends before.
func (o *Options) speaks(ctx context.Context, line *succession) bool {
	if !o.HasPredecessor {
		return true
	}
	select {
	case <-line.serving:
		return true
	case <-line.alone:
		return true
	case <-ctx.Done():
		return false
	}
}

// watch asks each second, until ctx ends, whether the predecessor still waits for this process. Once it does not, watch closes alone, so that
// this process answers operators while its sources cannot be read.
func (o *Options) watch(ctx context.Context, line *succession) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if errors.Is(takeover.Waits(ctx, o.Takeover), takeover.ErrNobody) {
			glog.Warningf("-takeover: the predecessor has ended, or drains, and has handed over nothing: this process answers operators, and serves once it has read the first state")
			line.words.load()
			close(line.alone)
			return
		}
	}
}

// serves reports whether a process waits for its successor at path that has read one of the sources. While that process hands over to another
// one, serves waits for who serves then: no source is passed over meanwhile.
func serves(ctx context.Context, path string, sources []string) bool {
	lacks, err := takeover.Lacks(ctx, path)
	return !errors.Is(err, takeover.ErrNobody) && slices.ContainsFunc(sources, func(s string) bool { return !slices.Contains(lacks, s) })
}

// predecessorEnds is how long after a take-over a predecessor may still guard its routes.
const predecessorEnds = time.Second

// answerFor has the node answer for the addresses of its ranges, until the function that it returns is called: after that a successor does, if there is
// one, or a process that has begun beside this one, or the predecessor does that this process has never taken over from.
func (o *Options) answerFor(ctx context.Context, line *succession) (end func()) {
	if o.Routes == nil {
		return func() {}
	}
	if err := o.Routes.Install(); err != nil {
		glog.Errorf("-service_cidr: this node does not answer for all of its ranges, and services at their addresses get no clients: %v", err)
	}
	stop := background(ctx, func(ctx context.Context) {
		if err := o.Routes.Guard(ctx); err != nil {
			glog.Errorf("-service_cidr: the routes are not watched: %v", err)
		}
	})
	line.afterwards = stop // they are the successor's, also while this process drains
	pruned := background(ctx, func(ctx context.Context) {
		select {
		case <-line.serving:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(predecessorEnds):
		case <-ctx.Done():
			return
		}
		if err := o.Routes.Prune(); err != nil {
			glog.Errorf("-service_cidr: %v; kube-proxy cleanup deletes what is left", err)
		}
	})
	return func() {
		pruned()
		stop()
		remove := o.Routes.Remove
		switch {
		case line.handedOver.Load():
			return
		case o.HasPredecessor && !isClosed(line.serving) && !isClosed(line.alone):
			remove = o.Routes.Withdraw
		case o.anotherServes(ctx):
			return
		}
		if err := remove(); err != nil {
			glog.Errorf("-service_cidr: %v; kube-proxy cleanup deletes what is left", err)
		}
	}
}

// anotherServes reports whether another process waits for a successor, or seems to, once this one does not any more.
func (o *Options) anotherServes(ctx context.Context) bool {
	if o.Takeover == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return !errors.Is(takeover.Waits(ctx, o.Takeover), takeover.ErrNobody)
}

// background runs f until the function that it returns is called, which waits for the end of f. The end of
// ctx is no reason for f to end.
func background(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// settings returns what /configz shows of the command line.
func (o *Options) settings() map[string]string {
	if o.Settings == nil {
		return nil
	}
	return o.Settings()
}

// answers is what operators are told.
func (o *Options) answers(h *health, numbers *metrics.Metrics, proxier *proxy.Proxier, balancer *balance.LoadBalancerRR, page *statuspage.Page, controlled control.Node) operators.Answers {
	answers := operators.Answers{
		Live:    h.live,
		Healthy: h.healthy,
		Ready:   h.ready,
		Configz: func() any { return h.configz(o.settings(), proxier.Limits(), balancer.Checker) },
		Version: o.Version,
		Metrics: numbers,
		Probed:  numbers.Probed,
		Pages:   page.Handlers(),
		Files:   page.Files(),
		Streams: page.Streams(),
	}
	answers.Pages[control.EndpointPath] = controlled.EndpointPage(hostName(), h.inForce)
	if o.PageToken != nil {
		answers.Actions = map[string]http.Handler{control.ActionPath: &control.Browser{Node: controlled, Token: o.PageToken}}
	}
	return answers
}

// hostName is the name of the machine.
func hostName() string {
	if name, err := os.Hostname(); err == nil {
		return name
	}
	return "this node"
}

// shown is what people see in a browser.
func (o *Options) shown(h *health, proxier *proxy.Proxier, balancer *balance.LoadBalancerRR, endings *recent.Endings, changes *history.History) statuspage.Node {
	actionPath := ""
	if o.PageToken != nil {
		actionPath = control.ActionPath
	}
	return statuspage.Node{
		Host:     hostName(),
		Version:  o.Version.Version,
		Leaving:  func() bool { return h.leaving.Err() != nil },
		Stopping: func() bool { return h.stopping.Err() != nil },
		Live:     h.live,
		Age:      h.age,
		MaxAge:   h.maxAge,
		Stale:    h.stale,
		Sources:  o.Sources,
		Proxier:  proxier,
		Balancer: balancer,
		Endings:  endings,
		History:  changes,
		Overdue:  balancer.Checker.Overdue,

		UpgradeFailure: o.UpgradeFailure,
		RoutesMissing:  o.Routes.Problem,
		HealthPorts:    h.local.Problems,
		ActionPath:     actionPath,
	}
}

// An applied handler stands behind the one that serves, and knows how far that has come.
type applied struct {
	revision atomic.Int64 // of the last change that is in force
}

// OnUpdate implements config.Handler.
func (a *applied) OnUpdate(b registry.Batch) {
	if b.Revision != 0 {
		a.revision.Store(b.Revision)
	}
}

// measured is where the metrics are read.
func (o *Options) measured(h *health, proxier *proxy.Proxier, balancer *balance.LoadBalancerRR, line *succession) metrics.Node {
	n := metrics.Node{
		Ready: func() error {
			_, err := h.ready()
			return err
		},
		Live:            h.live,
		Drained:         h.onlyDrained,
		ConfigAge:       h.age,
		Stale:           h.stale,
		Status:          func() config.Status { return config.Total(o.Sources...) },
		Lost:            func() (all, some int) { return config.Lost(time.Now(), o.Sources...) },
		Pending:         h.pending,
		Proxier:         proxier,
		Checks:          balancer.Checker.Counts,
		Rotation:        balancer.StatusOfPort,
		FailedTakeovers: line.failures.Load,
		UpgradeFailure:  o.UpgradeFailure,
		ElectedBy:       func(name registry.Name) string { return elections.KeyOf(proxier.Service(name)) },
		Overrides:       func() int { return len(balancer.Overrides()) },
		HealthNotOpen:   func() int { return len(h.local.Problems()) },
	}
	if len(o.Proxy.ServiceRanges) > 0 {
		n.RoutesMissing, n.RoutesRestored = o.Routes.Missing, o.Routes.Restored
	}
	n.Endpoints = balancer.Status
	n.EndpointsOf = balancer.StatusOf
	if o.ConnectionLog != nil {
		n.Log = o.ConnectionLog
	}
	return n
}
