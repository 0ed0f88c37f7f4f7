package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/golang/glog"
)

// A tcpSocket is one open TCP port of the portable engine.
//
//	accept ──▶ serve: reach an endpoint ──▶ relay: a pump for each direction
//	one goroutine    one goroutine for each client, and one more while it is relayed
type tcpSocket struct {
	engine   *portable
	listener *net.TCPListener
	accept   func() (*net.TCPConn, error) // the listener's
	owner    *atomic.Pointer[claim]

	ctx  context.Context // ends when the socket is closed
	stop context.CancelFunc

	unserved quieter // clients that no endpoint answered
	loops    quieter // endpoints that are listeners of ours
}

// listenTCP opens the socket of a port. Bound to 0.0.0.0 it serves both families, as in v0.4.
func (e *portable) listenTCP(addr netip.AddrPort, owner *atomic.Pointer[claim]) (socket, error) {
	if !e.budget.tryAcquire(1) {
		return nil, fmt.Errorf("listen tcp %s: %w", addr, errNoDescriptors)
	}
	config := net.ListenConfig{KeepAliveConfig: keepAlive(e.cfg)}
	config.SetMultipathTCP(false) // its resets and half-closes are not those of TCP
	l, err := config.Listen(e.ctx, "tcp", addr.String())
	if err != nil {
		e.budget.release(1)
		return nil, err
	}
	listener := l.(*net.TCPListener)
	s := &tcpSocket{engine: e, listener: listener, accept: listener.AcceptTCP, owner: owner}
	s.ctx, s.stop = context.WithCancel(e.ctx)
	e.work.Go(s.acceptAll)
	return s, nil
}

// keepAlive has the kernel find out whether a silent peer is still there, and lets it miss three
// probes. (Package net turns on TCP_NODELAY by itself.)
func keepAlive(cfg Config) net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: cfg.TCPKeepAlive, Interval: cfg.TCPKeepAlive, Count: probes}
}

const probes = 3

// disown does nothing: TCP connections outlive the claim they began under.
func (s *tcpSocket) disown(*claim) {}

// close returns when the port is free. The kernel resets the clients in its queue, and acceptAll
// the one it may have in hand.
func (s *tcpSocket) close() {
	s.listener.Close()
	s.stop()
	s.engine.budget.release(1)
}

// How long accepting pauses when it fails: at first only for a moment, since most often a client is
// just about to leave.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// acceptAll accepts clients until the socket is closed. It waits for nothing but them and room for
// them (v0.4 dialled in this loop, so that one dead endpoint held up all clients: D36), and however
// accepting fails it neither spins nor fills the log (D38).
func (s *tcpSocket) acceptAll() {
	e := s.engine
	var pause time.Duration
	for {
		client, err := s.accept()
		if err == nil {
			owner := s.owner.Load()
			if err = e.budget.acquire(s.ctx, 2); err == nil {
				pause = 0
				e.work.Go(func() { s.serve(owner, client) })
				continue
			}
			reset(client)
		}
		if errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil {
			return
		}
		pause = min(max(2*pause, firstPause), lastPause)
		if err != errNoDescriptors { // the budget logs that one
			s.reportAccept(err)
		}
		sleep(s.ctx, pause)
	}
}

// reportAccept logs that clients cannot be accepted, one line for all ports.
func (s *tcpSocket) reportAccept(err error) {
	if times, ok := s.engine.acceptErrors.ask(1); ok {
		glog.Warningf("cannot accept clients of %s: %v; trying again until it can (%d times since such a line)", s.owner.Load().key, err, times)
	}
}

// sleep waits for a duration, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// serve sees one client to an endpoint and back, from beginning to end. A client that no endpoint
// answers is turned away by a reset: a clean end could be taken for an empty answer.
func (s *tcpSocket) serve(owner *claim, client *net.TCPConn) {
	e := s.engine
	defer e.budget.release(2)
	if v := glog.V(2); v {
		v.Infof("accepted %s for %s", client.RemoteAddr(), owner.key)
	}
	backend, endpoint, failed := e.dialer.reach(e.ctx, owner.rotation)
	for backend == nil && len(failed) == 0 && s.owner.Load() != owner {
		// The port changed hands before we had chosen, and who had it has no endpoints any more.
		owner = s.owner.Load()
		backend, endpoint, failed = e.dialer.reach(e.ctx, owner.rotation)
	}
	s.report(owner, client, failed)
	if backend == nil {
		reset(client)
		s.reportUnserved(owner, client, failed)
		return
	}
	if v := glog.V(3); v {
		v.Infof("%s: %s → %s", owner.key, client.RemoteAddr(), endpoint.addr)
	}
	sent, received := newRelay(client, backend, e.cfg).run(e.ctx)
	if v := glog.V(4); v {
		v.Infof("%s: %s → %s has ended: %d bytes there, %d back", owner.key, client.RemoteAddr(), endpoint.addr, sent, received)
	}
}

// report logs which endpoints did not answer a client.
func (s *tcpSocket) report(owner *claim, client *net.TCPConn, failed []failure) {
	for _, f := range failed {
		if v := glog.V(3); v {
			v.Infof("%s: %s is not served by %s: %v", owner.key, client.RemoteAddr(), f.endpoint.addr, f.err)
		}
		if errors.Is(f.err, errOwnListener) {
			if times, ok := s.loops.ask(1); ok {
				glog.Errorf("%s: endpoint %s is not used: %v (%d clients since such a line)", owner.key, f.endpoint.addr, f.err, times)
			}
		}
	}
}

// reportUnserved logs that a client was turned away, unless we are just being stopped.
func (s *tcpSocket) reportUnserved(owner *claim, client *net.TCPConn, failed []failure) {
	if s.engine.ctx.Err() != nil {
		return
	}
	times, ok := s.unserved.ask(1)
	if !ok {
		return
	}
	why := "the service has no endpoints"
	if n := len(failed); n > 0 {
		why = fmt.Sprintf("no endpoint of the %d tried answers; the last was %s: %v", n, failed[n-1].endpoint.addr, failed[n-1].err)
	}
	glog.Warningf("%s: client %s was turned away (%d since such a line): %s", owner.key, client.RemoteAddr(), times, why)
}
