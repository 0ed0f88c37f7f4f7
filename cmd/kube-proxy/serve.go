package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/golang/glog"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"kubeproxy/cmd/internal/connlog"
	"kubeproxy/cmd/internal/control"
	"kubeproxy/cmd/internal/fdstore"
	"kubeproxy/cmd/internal/logsink"
	"kubeproxy/cmd/internal/metrics"
	"kubeproxy/cmd/internal/node"
	"kubeproxy/cmd/internal/upgrade"
	"kubeproxy/config/remote"
	"kubeproxy/config/statefile"
	"kubeproxy/proxy"
	"kubeproxy/proxy/anyip"
	"kubeproxy/proxy/balance/checks"
)

// garbage is how much of it may pile up, in percent of what lives, before it is collected. What lives is the
// state, which seldom changes, and traffic makes hardly any garbage: so half of Go's usual 100 is
// hardly ever felt as work, and always as memory: beside a thousand changes a second, too, where clients
// were seen to wait no longer than with nothing collected at all (docs/performance.md, Scale).
const garbage = 50

// serve carries clients to services until SIGTERM or SIGINT, for -stop_grace more, and then until they have been drained.
func serve(o *options, flags *pflag.FlagSet, args []string, log *logsink.Sink) error {
	hangups, upgrades := onHangup(), upgrade.On(o.takeover) // from the start: by default the signals would end us
	from, err := o.source.open(flags)
	if err != nil {
		return err
	}
	served := o.proxyConfig()
	if o.checkCAFile != "" {
		authorities, err := remote.NewRoots(remote.Text{Path: o.checkCAFile})
		if err != nil {
			return fmt.Errorf("-endpoint_check_cafile: %w", err)
		}
		served.Checks.Roots = checks.Trust(authorities.Pool)
	}
	if err := served.Validate(); err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", "; ")) // each of them, in one line
	}
	routes, err := anyip.Open(served.ServiceRanges, o.takeover)
	if err != nil {
		return fmt.Errorf("-service_cidr: %w", err)
	}
	var connections *connlog.Log
	if o.connectionLog != "" {
		host, _ := os.Hostname() // empty: lines name no node
		if connections, err = connlog.Open(o.connectionLog, cmp.Or(o.source.node.Name, host)); err != nil {
			return fmt.Errorf("-connection_log: %w", err)
		}
	}
	token, err := control.TokenFile(o.pageActions)
	if err != nil {
		return fmt.Errorf("-page_actions: %w", err)
	}
	var state *statefile.File
	if o.stateDir != "" {
		if state, err = statefile.Open(statefile.Config{Dir: o.stateDir, Period: o.source.sync, MaxAge: o.stateMaxAge, Node: o.source.node}); err != nil {
			return fmt.Errorf("-state_dir: %w", err)
		}
	}
	twoMoreThanProcessors()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	store, err := fdstore.Open(served.BindAddress)
	if err != nil {
		glog.Warningf("the service manager keeps no listening sockets: %v", err)
	}
	reloaded := newReloader(args, o.configFile != "", flags)
	signals, restore := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer restore()

	glog.Infof("%v, %s %s/%s", readBuildInfo(), runtime.Version(), runtime.GOOS, runtime.GOARCH)

	hasPredecessor, err := node.FindPredecessor(signals, o.takeover) // which may be busy with another successor
	switch {
	case err != nil && signals.Err() != nil:
		glog.Infof("%v: ending before anything is served", context.Cause(signals))
		return nil
	case err != nil:
		return err
	}
	manager := new(speaker)
	g, ctx := errgroup.WithContext(context.Background())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	beforeHandOver, handedOver := context.WithCancel(ctx)
	defer handedOver()
	inForce := make(chan struct{}) // closed when the first state is
	g.Go(func() error {
		select {
		case <-signals.Done():
		case <-ctx.Done():
			return nil // not told to stop: something went wrong, and Wait tells what
		}
		restore() // a second signal finds the default handling again, and ends us at once
		if !o.leave(beforeHandOver, context.Cause(signals), inForce) {
			return nil // the service manager would end the successor if it were told STOPPING=1
		}
		glog.Infof("%v: draining for at most %v", context.Cause(signals), o.proxy.DrainTimeout)
		stop() // only now, for this line to come before those that tell of the drain
		if !hasPredecessor || isClosed(inForce) {
			notify(daemon.SdNotifyStopping + "\nSTATUS=draining")
		}
		return nil
	})
	g.Go(func() error {
		tellReady(ctx, inForce, hasPredecessor, notify)
		return nil
	})
	g.Go(func() error {
		hangups.handle(ctx, func() {
			log.Reopen()
			if connections != nil {
				connections.Reopen()
			}
		}, reloaded.reload)
		return nil
	})
	g.Go(func() error { return upgrades.Run(beforeHandOver, inForce, manager) })
	g.Go(func() error {
		defer stop() // for a successor serves, if no signal has stopped the process
		served.EtcdPorts = from.localPorts(ctx)
		return node.Run(ctx, node.Options{
			Sources:     from.sources,
			Proxy:       served,
			Routes:      routes,
			RandomStart: o.randomStart,
			Ready: func() {
				close(inForce)
				debug.FreeOSMemory() // what reading the first state took, which is as much again as the state
			},
			FDStore:          store,
			Leaving:          signals,
			Takeover:         o.takeover,
			Control:          o.controlPath(),
			HasPredecessor:   hasPredecessor,
			Begin:            upgrades.Begin,
			Outgoing:         upgrades,
			HandedOver:       handedOver, // this process may drain for long: what becomes of the successor is not its business any more
			TookOver:         func() { notify(fmt.Sprintf("MAINPID=%d\n%s", os.Getpid(), daemon.SdNotifyReady)) },
			Watchdog:         fdstore.Watchdog(),
			Alive:            func() { notify(daemon.SdNotifyWatchdog) },
			Progress:         manager.progress,
			Operators:        o.operators,
			ConnectionLog:    connections,
			ConnectionStarts: o.connectionStarts,
			PageToken:        token,
			ConfigMaxAge:     o.configMaxAge,
			StateFile:        state,
			MetricsEndpoints: metrics.Choice(o.metricsEndpoints),
			Version:          readBuildInfo().document(),
			Settings:         reloaded.settings,
			UpgradeFailure:   upgrades.Failure,
		})
	})
	return g.Wait()
}

// leave waits for the grace between the signal to stop and the drain: load balancers see meanwhile that the node is not ready, and clients
// that they still send are served. A node that has served nobody yet has none. It returns false if ctx ends first, or has ended, for a successor serves.
func (o *options) leave(ctx context.Context, why error, inForce <-chan struct{}) bool {
	if ctx.Err() != nil || !isClosed(inForce) || o.stopGrace == 0 {
		return ctx.Err() == nil
	}
	glog.Infof("%v: not ready, and accepting clients for %v more (-stop_grace)", why, o.stopGrace)
	notify(daemon.SdNotifyStopping)
	select {
	case <-time.After(o.stopGrace):
		return true
	case <-ctx.Done():
		return false
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// proxyConfig is what the proxier needs to know of the flags.
func (o *options) proxyConfig() proxy.Config {
	c := o.proxy
	c.Node = o.source.node
	c.DrainTimeout = max(c.DrainTimeout, time.Nanosecond) // zero would mean the default there
	return c
}
