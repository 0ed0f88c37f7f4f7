package main

import (
	"context"
	"errors"
	"net/netip"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/golang/glog"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"kubeproxy/cmd/internal/node"
	"kubeproxy/proxy"
)

// serve carries clients to services until SIGTERM or SIGINT, and then until they have been drained.
func serve(o *options, flags *pflag.FlagSet) error {
	if o.master.address != "" {
		return errors.New("-master is not there yet: services can only be read from etcd, with -etcd_servers or -etcd_config")
	}
	etcd, err := o.etcd.source()
	if err != nil {
		return err
	}
	signals, restore := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer restore()

	glog.Infof("%v, %s %s/%s", readBuildInfo(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if ignored := given(flags, onlyForMaster); len(ignored) > 0 {
		glog.Warningf("%s is ignored: it means nothing without -master", strings.Join(ignored, ", "))
	}

	g, ctx := errgroup.WithContext(signals)
	g.Go(func() error {
		<-ctx.Done()
		if signals.Err() == nil {
			return nil // not told to stop: something went wrong, and Wait tells what
		}
		restore() // a second signal finds the default handling again, and ends us at once
		glog.Infof("%v: draining for at most %v", context.Cause(signals), o.drain)
		notify(daemon.SdNotifyStopping)
		return nil
	})
	g.Go(func() error {
		keepFlushing(ctx, o.logFlush.Duration)
		return nil
	})
	g.Go(func() error {
		return node.Run(ctx, node.Options{
			Etcd:        etcd,
			Proxy:       o.proxyConfig(),
			RandomStart: o.randomStart,
			Ready:       func() { notify(daemon.SdNotifyReady) },
		})
	})
	return g.Wait()
}

// proxyConfig is what the proxier needs to know of the flags.
func (o *options) proxyConfig() proxy.Config {
	return proxy.Config{
		BindAddress:       netip.Addr(o.bind),
		DialTimeout:       o.dial.Duration,
		DialTotalTimeout:  o.dialTotal.Duration,
		HalfClosedTimeout: o.halfClosed.Duration,
		UDPTimeout:        o.udp.Duration,
		TCPKeepAlive:      o.keepAlive.Duration,
		DrainTimeout:      max(o.drain.Duration, time.Nanosecond), // zero would mean the default there
	}
}

// given picks the flags that are on the command line.
func given(flags *pflag.FlagSet, names []string) []string {
	var on []string
	for _, name := range names {
		if flags.Changed(name) {
			on = append(on, "-"+name)
		}
	}
	return on
}

// notify tells the service manager, if there is one that wants to know (sd_notify(3)).
func notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		glog.Warningf("notify the service manager: %v", err)
	}
}
