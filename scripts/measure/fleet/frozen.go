//go:build linux

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"kubeproxy/registry"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// Where the puts go while the fleet is stopped.
const (
	below   = "below"
	outside = "outside"
)

// afterThaw is for how long puts go on after the thaw.
const afterThaw = 10 * time.Second

// windows are the two times of a round.
var windows = [2]string{"while they are stopped", "in the 10 s after"}

// freezing stops all of them with SIGSTOP while services change, in every round. Each round also makes the same puts without
// the fleet, so that the two can be compared.
func (l *lab) freezing(ctx context.Context, f fleet, etcd string, r *measure.Table) (err error) {
	defer try.Catch(&err)
	for range l.Rounds {
		f.stop()
		without := try.Get(l.freeze(ctx, none{}, r))
		try.Get(f.start(ctx, etcd, never))
		try.Do(measure.Pause(ctx, 2*time.Second)) // what the start has left behind
		with := try.Get(l.freeze(ctx, f, r))
		f.stop()
		for i, window := range windows {
			for _, q := range []float64{0.5, 0.99, 1} {
				record(r, fmt.Sprintf("p%v of puts without them, %s", 100*q, window), "ms", quantile(without[i].took, q))
				record(r, fmt.Sprintf("p%v of puts, %s", 100*q, window), "ms", quantile(with[i].took, q))
			}
			record(r, "p99 of puts to that without them, "+window, "times", quantile(with[i].took, 0.99)/quantile(without[i].took, 0.99))
			record(r, "puts that failed without them, "+window, "", without[i].failed)
			record(r, "puts that failed, "+window, "", with[i].failed)
		}
	}
	return nil
}

// freeze stops a fleet for the time of puts, lets it go on, and makes more puts.
//
// The later puts go outside the registry: to deliver and apply all changes of all services at that rate to fifty nodes that run takes more than
// the processors of one machine. Etcd delays all puts alike, whatever their keys.
func (l *lab) freeze(ctx context.Context, f fleet, r *measure.Table) (made [2]puts, err error) {
	defer try.Catch(&err)
	pids := f.pids()
	for _, pid := range pids {
		try.Do(syscall.Kill(pid, syscall.SIGSTOP))
	}
	thaw := sync.OnceValue(func() (err error) {
		for _, pid := range pids {
			err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
		}
		return err
	})
	defer thaw() // or a fleet that is stopped could not end
	peak := watchWatchers(ctx, l.etcd.Client)
	made[0] = try.Get(l.write(ctx, l.freezes, l.where == below))
	stopped := try.Get(peak())

	peak = watchWatchers(ctx, l.etcd.Client)
	var g errgroup.Group
	g.Go(func() (err error) {
		made[1], err = l.write(ctx, afterThaw, false)
		return err
	})
	if len(pids) > 0 {
		thawed := measure.SinceBoot()
		try.Do(thaw())
		arrivals(r, try.Get(f.served(ctx, try.Get(l.change(ctx)))), thawed)
	}
	try.Do(g.Wait())
	after := try.Get(peak())
	if len(pids) == 0 {
		return made, nil
	}
	record(r, "watches that etcd had at last, while they are stopped", "", stopped.watchers)
	for i, seen := range []lagging{stopped, after} {
		record(r, "slow watches at most, "+windows[i], "", seen.slow)
		record(r, "events pending at most, "+windows[i], "", seen.pending)
	}
	record(r, "the last slow watch, after the thaw", "s", after.slowUntil.Seconds())
	return made, nil
}

// puts are what came of some: how long each took, in ms, and how many of them failed.
type puts struct {
	took   []float64
	failed float64
}

// write makes puts at the rate of the options, each at a moment of its own, and gives how long after that each was answered, in ms. So puts that
// have to wait for others count with their waiting.
func (l *lab) write(ctx context.Context, lasts time.Duration, changes bool) (puts, error) {
	took := make([]float64, int(lasts.Seconds()*float64(l.rate)))
	var next, failed atomic.Int64
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for range 256 { // so many may be under way
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(took) {
					return nil
				}
				due := began.Add(time.Duration(i) * time.Second / time.Duration(l.rate))
				if err := measure.Pause(ctx, time.Until(due)); err != nil {
					return err
				}
				key, value := "/elsewhere/"+strconv.Itoa(i%l.services), endpointsRecord("elsewhere", endpointsOf(i%1000, l.endpoints))
				if changes {
					name := serviceName(i % l.services)
					key, value = registry.EndpointsPrefix+name, endpointsRecord(name, endpointsOf((i+i/l.services)%maxServices, l.endpoints))
				}
				put, cancel := context.WithTimeout(ctx, measure.PutTimeout)
				_, err := l.client.Put(put, key, value)
				cancel()
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err != nil { // etcd gives up after 7 s
					failed.Add(1)
				}
				took[i] = time.Since(due).Seconds() * milli
			}
		})
	}
	err := g.Wait()
	return puts{took, float64(failed.Load())}, err
}

// A lagging is what etcd says of its watches in a time: the most, and the last.
type lagging struct {
	slow, pending float64       // at most
	slowUntil     time.Duration // since it began, when etcd last had a slow one
	watchers      float64       // at last
}

// watchWatchers asks etcd for its watches until it is asked for the result.
func watchWatchers(ctx context.Context, etcd string) func() (lagging, error) {
	ctx, stop := context.WithCancel(ctx)
	var most lagging
	var g errgroup.Group
	g.Go(func() error {
		began := time.Now()
		for measure.Pause(ctx, 100*time.Millisecond) == nil {
			all, err := measure.Scrape(context.WithoutCancel(ctx), netip.MustParseAddrPort(etcd))
			if err != nil {
				return fmt.Errorf("etcd: %w", err)
			}
			said, err := all.Must(watchers, "etcd_debugging_mvcc_slow_watcher_total", "etcd_debugging_mvcc_pending_events_total")
			if err != nil {
				return fmt.Errorf("etcd: %w", err)
			}
			most.watchers, most.slow, most.pending = said[0], max(most.slow, said[1]), max(most.pending, said[2])
			if said[1] > 0 {
				most.slowUntil = time.Since(began)
			}
		}
		return nil
	})
	return func() (lagging, error) {
		stop()
		err := g.Wait()
		return most, err
	}
}

func quantile(values []float64, q float64) float64 {
	return sorted(values)[int(q*float64(len(values)-1))]
}
