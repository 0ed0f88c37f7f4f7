//go:build linux

package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"kubeproxy/registry"
	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// What changes and traffic have to do with each other: how long a change takes beside traffic, and what
// clients notice of many changes.

// saturating is how many connections leave no processor idle.
const saturating = 32

// quiet gives the addresses of the services that are never changed.
func (s *stock) quiet(n *node) []netip.AddrPort {
	var all []netip.AddrPort
	for i := range s.size.untouched() {
		all = append(all, netip.AddrPortFrom(n.host, s.port(i)))
	}
	return all
}

// besideTraffic is latencies, while clients of one service go as fast as they can. It gives their rate, too.
func besideTraffic(ctx context.Context, b *bench, s *stock, n *node) (behind []float64, rate float64, err error) {
	changes := max(10, b.changes/5)
	l := load.NewEcho(unix.SOCK_STREAM, s.quiet(n)[:1], saturating)
	conducted := make(chan error, 1)
	lasts, cancel := context.WithCancelCause(ctx)
	var w load.Window
	go func() {
		var err error
		w, err = load.Conduct(lasts, n.pids, 500*time.Millisecond, time.Duration(changes)*2*changesEvery, l)
		conducted <- err
	}()
	err = measure.Pause(ctx, 500*time.Millisecond)
	if err == nil {
		behind, err = latencies(ctx, b, s, n, changes)
	}
	if err != nil {
		cancel(err)
	}
	if cerr := <-conducted; err == nil {
		err = cerr
	}
	cancel(nil)
	if err == nil && l.Failed > 0 {
		err = fmt.Errorf("%d of the round trips failed: %s", l.Failed, l.Why)
	}
	if err != nil {
		return nil, 0, err
	}
	return behind, w.Done[0] / w.Elapsed.Seconds(), nil
}

// The churn: changes a second, and what clients do meanwhile.
const (
	churnRate   = 1000
	churners    = 8    // who put at the same time
	tripRate    = 2000 // round trips a second, on connections that stay
	connectRate = 100  // new connections a second

	warm = 500 * time.Millisecond // before it is measured
)

// A felt is what clients of untouched services have noticed.
type felt struct {
	trips, connects measure.Histogram
	failed          int
	why             string
	puts            int
	cpu             time.Duration
}

func (f *felt) add(g *felt) {
	f.trips.Add(&g.trips)
	f.connects.Add(&g.connects)
	if f.failed == 0 {
		f.why = g.why
	}
	f.failed += g.failed
	f.puts += g.puts
	f.cpu += g.cpu
}

// churn makes changes of endpoints for a minute. Half a minute before and half a minute after it the same is put
// that has no watch: what clients feel then is what it is compared with. A few changes come first, so that the
// heap has already found its size.
func (b *bench) churn(ctx context.Context, s *stock, note func(string, float64)) (err error) {
	defer try.Catch(&err)
	n := try.Get(startNode(ctx, b, s))
	defer n.process.Stop()
	try.Do(measure.Pause(ctx, 2*time.Second))
	var calm, busy, first felt
	whole := time.Duration(b.churned) * time.Second
	for i, stage := range []struct {
		prefix string
		lasts  time.Duration
		into   *felt
	}{{registry.EndpointsPrefix, whole / 6, &first}, {unwatched, whole / 2, &calm}, {registry.EndpointsPrefix, whole, &busy}, {unwatched, whole / 2, &calm}} {
		f := try.Get(b.feel(ctx, s, n, stage.prefix, stage.lasts))
		stage.into.add(f)
		try.Do(n.noteMemory(note, []string{"firstchurn", "beforechurn", "inchurn", "afterchurn"}[i]))
	}
	for i := s.size.untouched(); i < s.size.services; i += max(1, s.size.services/200) {
		if err := awaitGreeter(netip.AddrPortFrom(n.host, s.port(i)), s.states[i].by); err != nil {
			return fmt.Errorf("after the churn: %w", err)
		}
	}
	note("churned", float64(busy.puts)/(whole+warm).Seconds())
	note("churncpu", (busy.cpu-calm.cpu*time.Duration(busy.puts)/time.Duration(max(1, calm.puts))).Seconds()/float64(max(1, busy.puts)))
	note("failed", float64(busy.failed))
	note("failedcalm", float64(calm.failed))
	note("trips99", busy.trips.Quantile(0.99))
	note("trips99calm", calm.trips.Quantile(0.99))
	note("connects99", busy.connects.Quantile(0.99))
	note("connects99calm", calm.connects.Quantile(0.99))
	if busy.failed > 0 {
		fmt.Println("the first client that failed:", busy.why)
	}
	return nil
}

// feel puts endpoints under a prefix, churnRate a second, and has clients use services that this does not
// concern.
func (b *bench) feel(ctx context.Context, s *stock, n *node, prefix string, lasts time.Duration) (_ *felt, err error) {
	defer try.Catch(&err)
	f := &felt{}
	before := try.Get(measure.CPUOf(n.pids))
	l := load.NewEcho(unix.SOCK_STREAM, s.quiet(n), saturating)
	l.Rate = tripRate
	conducted, connected, putting := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := load.Conduct(ctx, n.pids, warm, lasts, l)
		conducted <- err
	}()
	go func() {
		connected <- f.connect(ctx, s.quiet(n), warm+lasts)
	}()
	go func() {
		var err error
		f.puts, err = s.churn(ctx, prefix, warm+lasts)
		putting <- err
	}()
	try.Do(errors.Join(<-conducted, <-connected, <-putting))
	after, err := measure.CPUOf(n.pids)
	f.cpu = after - before
	f.trips.Add(&l.Latency)
	if f.failed == 0 {
		f.why = l.Why
	}
	f.failed += l.Failed
	return f, err
}

// churn puts the endpoints of services in turn, as many a second as it should or as etcd can take. The puts of one service have one goroutine: etcd
// has to see them in their order, for the last one is looked for at the end.
func (s *stock) churn(ctx context.Context, prefix string, lasts time.Duration) (puts int, err error) {
	var turns [churners]chan clientv3.Op
	failed := make(chan error, churners)
	var putters sync.WaitGroup
	for i := range turns {
		turns[i] = make(chan clientv3.Op, 1)
		putters.Go(func() {
			for op := range turns[i] {
				if _, err := s.put(ctx, op); err != nil {
					failed <- err
					for range turns[i] { // no other goroutine waits for this one
					}
					return
				}
			}
		})
	}
	began := time.Now()
	for time.Since(began) < lasts && ctx.Err() == nil {
		for ; time.Duration(puts)*time.Second/churnRate <= time.Since(began); puts++ {
			i := s.next()
			if prefix == registry.EndpointsPrefix {
				s.states[i].by = 1 - s.states[i].by
			}
			turns[i%churners] <- s.endpoints(prefix, i)
		}
		time.Sleep(time.Millisecond)
	}
	for i := range turns {
		close(turns[i])
	}
	putters.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
		return puts, context.Cause(ctx)
	}
}

// connect opens connections at even intervals, makes a round trip on each and resets it.
func (f *felt) connect(ctx context.Context, to []netip.AddrPort, lasts time.Duration) error {
	began := time.Now()
	var mu sync.Mutex
	var clients sync.WaitGroup
	for i := 0; time.Since(began) < lasts && ctx.Err() == nil; i++ {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / connectRate)))
		clients.Go(func() {
			due := time.Now()
			err := roundTrip(to[i%len(to)])
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				f.connects.Record(time.Since(due))
			} else if f.failed++; f.failed == 1 {
				f.why = err.Error()
			}
		})
	}
	clients.Wait()
	return context.Cause(ctx)
}

func roundTrip(to netip.AddrPort) (err error) {
	defer try.Catch(&err)
	conn := try.Get(net.DialTimeout("tcp4", to.String(), askTimeout))
	defer conn.Close()
	try.Do(errors.Join(conn.SetDeadline(time.Now().Add(askTimeout)), conn.(*net.TCPConn).SetLinger(0)))
	var buf [64]byte
	try.Get(conn.Write(buf[:]))
	_, err = io.ReadFull(conn, buf[:])
	return err
}
