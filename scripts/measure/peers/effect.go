//go:build linux

package peers

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"kubeproxy/registry"
	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// How long a change of the registry takes until it is served, beside traffic that leaves no processor
// idle.

// How often an endpoint is changed, and how many times as long as others this row is measured, so that
// there are enough changes.
const (
	effectEvery  = 100 * time.Millisecond
	effectRounds = 5
)

// effect has round trips saturate the proxy, moves a UDP service from one endpoint to the other and
// back, and sees from the endpoints' answers to a probe when the move was served. A bare watcher, in a
// process of its own, tells when the event could be seen at the earliest on a machine so loaded.
func effect(ctx context.Context, b *bench, p *proxy) (_ sample, err error) {
	defer try.Catch(&err)
	key := registry.EndpointsPrefix + "stamp"
	if b.watcher == nil {
		b.watcher = try.Get(measure.StartWatcher(b.Group, b.Executable, b.etcdURL, key))
	}
	asks := &load.Probe{To: p.to(p.at.Stamp)[0], Every: 500 * time.Microsecond, Heard: make(chan load.Stamp, 1000)}
	probing := make(chan error, 1)
	go func() { probing <- asks.Run() }()

	l := load.NewEcho(unix.SOCK_STREAM, p.to(p.at.Echo), clients)
	var w load.Window
	conducted := make(chan error, 1)
	go func() {
		var err error
		w, err = load.Conduct(ctx, p.pids, b.warm, effectRounds*b.measured, l)
		conducted <- err
	}()
	effects, err := move(ctx, b, asks.Heard, key, time.Now().Add(b.warm), effectRounds*b.measured)
	if cerr := <-conducted; err == nil {
		err = cerr
	}
	asks.Stop()
	for range asks.Heard { // until it is closed, so no sender waits
	}
	if perr := <-probing; err == nil {
		err = perr
	}
	if err != nil {
		return sample{}, err
	}

	came := try.Get(measure.ReadEvents(b.watcher.Output))
	s := operations(w, &l.Counters)
	s.Values["used"] = w.Busy.Seconds() / w.Elapsed.Seconds() / float64(runtime.NumCPU())
	var behind, sincePut measure.Histogram
	for _, e := range effects {
		seen, ok := came[e.revision]
		if !ok {
			s.Failed, s.Why = s.Failed+1, fmt.Sprintf("the bare watcher did not see revision %d", e.revision)
			continue
		}
		behind.Record(e.served - seen)
		sincePut.Record(e.served - e.put)
		s.Pool = append(s.Pool, (e.served - seen).Seconds())
	}
	s.Values["behind50"], s.Values["behind99"] = behind.Quantile(0.50), behind.Quantile(0.99)
	s.Values["put50"] = sincePut.Quantile(0.50)
	return s, nil
}

// move changes the endpoint of the service at even intervals, each time waiting until the change is
// served.
func move(ctx context.Context, b *bench, heard <-chan load.Stamp, key string, from time.Time, lasts time.Duration) ([]effectOf, error) {
	var effects []effectOf
	for at := from; at.Before(from.Add(lasts)); at = at.Add(effectEvery) {
		select {
		case <-time.After(time.Until(at)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		b.stampedBy = 1 - b.stampedBy
		to := []netip.AddrPort{netip.AddrPortFrom(load.BackendHost(b.stampedBy), b.behind.Stamp)}
		e := effectOf{put: measure.SinceBoot()}
		put, cancel := context.WithTimeout(ctx, measure.PutTimeout)
		r, err := b.etcd.Do(put, clientv3.OpPut(key, measure.EndpointsRecord("stamp", to)))
		cancel()
		if err != nil {
			return nil, fmt.Errorf("put: %w", err)
		}
		e.revision = r.Put().Header.Revision
		for e.served == 0 {
			select {
			case s, ok := <-heard:
				switch {
				case !ok:
					return nil, fmt.Errorf("the probe has ended")
				case s.Endpoint == uint64(1+b.stampedBy):
					e.served = s.Asked
				}
			case <-time.After(5 * time.Second):
				return nil, fmt.Errorf("revision %d is not served after 5 s", e.revision)
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		effects = append(effects, e)
	}
	return effects, nil
}
