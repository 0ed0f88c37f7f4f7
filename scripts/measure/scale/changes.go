//go:build linux

package scale

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"kubeproxy/internal/process"
	"kubeproxy/registry"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// What a change costs, and how long it takes until it is served.

// Between changes; and between a change and the one connection that has to see it served.
const (
	changesEvery = 10 * time.Millisecond
	lookAfter    = 30 * time.Millisecond
	atTheLatest  = 5 * time.Second
)

// costOfEndpoints gives the processor time that a change of endpoints costs the node, the connection that looks at
// it included; and beside it, what the same events cost a bare watcher, which does nothing with them, and what it costs
// to read as many bytes at the same moments.
func costOfEndpoints(ctx context.Context, b *bench, s *stock, n *node) (cpu, bare, reading float64, err error) {
	defer try.Catch(&err)
	watcher := try.Get(b.watch(s))
	defer watcher.Stop()
	r := try.Get(b.startReader())
	defer r.stop()
	others := [][]int{{watcher.PID()}, {r.process.PID()}}
	var used [2]time.Duration
	for i, pids := range others {
		used[i] = try.Get(measure.CPUOf(pids))
	}
	stop := n.profile(ctx, b, "endpoints-"+s.size.name)
	cpu, err = eachSeen(ctx, s, n, b.changes, func(i int) (func() error, error) {
		s.states[i].by = 1 - s.states[i].by
		want, to := s.states[i].by, netip.AddrPortFrom(n.host, s.port(i))
		op := s.endpoints(registry.EndpointsPrefix, i)
		_, err := s.put(ctx, op)
		if err == nil {
			_, err = r.conn.Write(op.ValueBytes())
		}
		return func() error { return awaitGreeter(to, want) }, err
	})
	if perr := stop(); err == nil {
		err = perr
	}
	if err != nil {
		return 0, 0, 0, err
	}
	for i, pids := range others {
		after := try.Get(measure.CPUOf(pids))
		used[i] = after - used[i]
	}
	each := func(used time.Duration) float64 { return used.Seconds() / float64(b.changes) }
	return cpu, each(used[0]), each(used[1]), nil
}

// A reader is a process that reads from a connection and does nothing with it: what it takes to be woken up.
type reader struct {
	process *process.Process
	conn    net.Conn // to it
}

func (b *bench) startReader() (_ *reader, err error) {
	defer try.Catch(&err)
	l := try.Get(net.Listen("tcp4", "127.0.0.1:0"))
	defer l.Close()
	process := try.Get(b.Group.Start("reader", b.Executable, "reader", l.Addr().String()))
	if err = l.(*net.TCPListener).SetDeadline(time.Now().Add(atTheLatest)); err == nil {
		var conn net.Conn
		if conn, err = l.Accept(); err == nil {
			return &reader{process, conn}, nil
		}
	}
	process.Stop()
	return nil, fmt.Errorf("the reader has not connected: %w", err)
}

func (r *reader) stop() {
	r.conn.Close()
	r.process.Stop()
}

// runReader connects and reads until the connection ends.
func runReader(address string) error {
	conn, err := net.Dial("tcp4", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.Copy(io.Discard, struct{ io.Reader }{conn})
	return err
}

// costOfLooking gives what of the cost of a change is that of the connection that looks at it: as many look, and
// find nothing new, while the same is put under a prefix without a watch.
func costOfLooking(ctx context.Context, b *bench, s *stock, n *node) (float64, error) {
	return eachSeen(ctx, s, n, b.changes/2, func(i int) (func() error, error) {
		want, to := s.states[i].by, netip.AddrPortFrom(n.host, s.port(i))
		_, err := s.put(ctx, s.endpoints(unwatched, i))
		return func() error { return awaitGreeter(to, want) }, err
	})
}

// eachSeen makes changes to services in turn, 100 a second, and looks a little later whether each is served. No
// service is changed again before it was seen, so fewer services may be changed less often. It gives the
// processor time for each change that the node has used meanwhile.
func eachSeen(ctx context.Context, s *stock, n *node, changes int, change func(i int) (look func() error, err error)) (_ float64, err error) {
	defer try.Catch(&err)
	var looks sync.WaitGroup
	failed := make(chan error, changes)
	before := try.Get(measure.CPUOf(n.pids))
	began := time.Now()
	for c := range changes {
		time.Sleep(time.Until(began.Add(time.Duration(c) * changesEvery)))
		i := s.next()
		busy := &s.states[i].busy
		busy.Lock()
		look, err := change(i)
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			busy.Unlock()
			looks.Wait()
			return 0, err
		}
		looks.Go(func() {
			defer busy.Unlock()
			time.Sleep(lookAfter)
			if err := look(); err != nil {
				failed <- err
			}
		})
	}
	looks.Wait()
	after := try.Get(measure.CPUOf(n.pids))
	select {
	case err := <-failed:
		return 0, err
	default:
		return (after - before).Seconds() / float64(changes), nil
	}
}

// awaitGreeter connects to a service until the greeter that is wanted answers: once, as a rule.
func awaitGreeter(to netip.AddrPort, want int) error {
	for deadline := time.Now().Add(atTheLatest); ; time.Sleep(lookAfter / 3) {
		g, err := ask(to)
		switch {
		case err == nil && g.by == want:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%v: the change of endpoints is not served after %v (%v)", to, atTheLatest, err)
		}
	}
}

// costOfPorts gives the processor time that a change of a port costs the node, the connection that looks at it
// included, and how long after the bare watcher saw it the new port was open. To knock at a port that is not
// open costs only the kernel.
func costOfPorts(ctx context.Context, b *bench, s *stock, n *node) (cpu float64, behind []float64, err error) {
	watcher, err := b.watch(s)
	if err != nil {
		return 0, nil, err
	}
	defer watcher.Stop()
	var mu sync.Mutex
	opened := make(map[int64]time.Duration)
	cpu, err = eachSeen(ctx, s, n, b.changes, func(i int) (func() error, error) {
		s.states[i].at = 1 - s.states[i].at
		want, to := s.states[i].by, netip.AddrPortFrom(n.host, s.port(i))
		at, knocked := time.Duration(0), make(chan error, 1)
		go func() {
			var err error
			at, err = knock(to, want)
			knocked <- err
		}()
		revision, err := s.put(ctx, s.spec(i))
		return func() error {
			if err := <-knocked; err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			opened[revision] = at
			return nil
		}, err
	})
	if err != nil {
		return 0, nil, err
	}
	behind, err = behindWatcher(watcher, opened)
	return cpu, behind, err
}

// knock connects to a port until it is open, sees who answers, and says since when it was open.
func knock(to netip.AddrPort, want int) (time.Duration, error) {
	for deadline := time.Now().Add(atTheLatest); ; {
		fd, err := connect(to)
		at := measure.SinceBoot()
		switch {
		case err == nil:
			var buf [9]byte
			n, err := unix.Read(fd, buf[:])
			closeHard(fd)
			if err != nil || n == 0 || int(buf[0]) != want {
				return 0, fmt.Errorf("%v is open, but says %q (%v)", to, buf[:max(n, 0)], err)
			}
			return at, nil
		case time.Now().After(deadline):
			return 0, fmt.Errorf("%v is not open after %v: %w", to, atTheLatest, err)
		}
		doze(200 * time.Microsecond)
	}
}

// connect makes a blocking connection: over loopback it is refused or accepted at once.
func connect(to netip.AddrPort) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	patience := unix.NsecToTimeval(atTheLatest.Nanoseconds())
	if err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

// closeHard resets a connection, so that no port is kept waiting.
func closeHard(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // it may be gone already
	unix.Close(fd)
}

// doze is a sleep to the microsecond; those of Go last a millisecond at least.
func doze(d time.Duration) {
	pause := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&pause, nil) // one that is interrupted was long enough
}

// latencies gives how long after the bare watcher saw it each of some changes of endpoints was served.
//
// From the put on, a client connects every half millisecond. The endpoint itself says when it came, and the
// first to reach a new one counts.
func latencies(ctx context.Context, b *bench, s *stock, n *node, changes int) (_ []float64, err error) {
	defer try.Catch(&err)
	watcher := try.Get(b.watch(s))
	defer watcher.Stop()
	served := make(map[int64]time.Duration)
	began := time.Now()
	for c := range changes {
		time.Sleep(time.Until(began.Add(time.Duration(c) * 2 * changesEvery)))
		try.Do(context.Cause(ctx))
		i := s.next()
		s.states[i].by = 1 - s.states[i].by
		revision, at := try.Get2(s.timeOne(ctx, s.endpoints(registry.EndpointsPrefix, i), netip.AddrPortFrom(n.host, s.port(i)), s.states[i].by))
		served[revision] = at
	}
	return behindWatcher(watcher, served)
}

// timeOne makes one change, and says when it was served.
func (s *stock) timeOne(ctx context.Context, op clientv3.Op, to netip.AddrPort, want int) (revision int64, served time.Duration, err error) {
	var asking sync.WaitGroup
	var mu sync.Mutex // guards served, failed and done
	var failed error
	done := false
	put := make(chan error, 1)
	go func() {
		var err error
		revision, err = s.put(ctx, op)
		put <- err
	}()
	for deadline := time.Now().Add(atTheLatest); ; {
		mu.Lock()
		over := done || failed != nil
		mu.Unlock()
		if over || time.Now().After(deadline) {
			break
		}
		asking.Go(func() {
			g, err := ask(to)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failed = err
			case g.by == want && (!done || g.at < served):
				done, served = true, g.at
			}
		})
		doze(500 * time.Microsecond)
	}
	asking.Wait()
	switch err := <-put; {
	case err != nil:
		return 0, 0, err
	case failed != nil:
		return 0, 0, failed
	case !done:
		return 0, 0, fmt.Errorf("revision %d is not served after %v", revision, atTheLatest)
	}
	return revision, served, nil
}

// behindWatcher takes from times when a bare watcher saw the same revisions.
func behindWatcher(watcher *process.Process, served map[int64]time.Duration) ([]float64, error) {
	var came map[int64]time.Duration
	err := watcher.Await(5*time.Second, func() bool {
		var err error
		came, err = measure.ReadEvents(watcher.Output)
		return err != nil || len(came) >= len(served)
	})
	if err != nil {
		return nil, err
	}
	var behind []float64
	for revision, at := range served {
		seen, ok := came[revision]
		if !ok {
			return nil, fmt.Errorf("the bare watcher did not see revision %d", revision)
		}
		behind = append(behind, (at - seen).Seconds())
	}
	return behind, nil
}

// watch starts a bare watcher of the registry.
func (b *bench) watch(s *stock) (*process.Process, error) {
	return measure.StartWatcher(b.Group, b.Executable, s.url, registry.Prefix)
}
