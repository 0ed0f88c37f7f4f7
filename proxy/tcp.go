package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
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
	port     uint16

	ctx  context.Context // ends when the socket is closed
	stop context.CancelFunc
}

// listenTCP opens the socket of a port. Bound to 0.0.0.0 it serves both families, as in v0.4.
func (e *portable) listenTCP(addr netip.AddrPort, owner *atomic.Pointer[claim]) (socket, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive(e.cfg), Control: prepareListen}
	config.SetMultipathTCP(false) // its resets and half-closes are not those of TCP
	l, err := config.Listen(e.ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	listener := l.(*net.TCPListener)
	s := &tcpSocket{engine: e, listener: listener, accept: listener.AcceptTCP, owner: owner, port: uint16(listener.Addr().(*net.TCPAddr).Port)}
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

// ownerChanged does nothing: TCP connections outlive the claim they began under.
func (s *tcpSocket) ownerChanged() {}

// close returns when the port is free. The kernel resets the clients in its queue, and acceptAll
// the one it may have in hand.
func (s *tcpSocket) close() {
	s.listener.Close()
	s.stop()
	s.engine.budget.releaseOfListener()
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
			c, ok := e.conns.admit(s.owner.Load(), s.port, remote(client))
			if !ok {
				reset(client)
				continue
			}
			if err = e.budget.acquire(s.ctx, 2); err == nil {
				pause = 0
				e.work.Go(func() { s.serve(c, client) })
				continue
			}
			reset(client)
			c.turnAway(s.whyNoRoom(c, err), nil)
		}
		if errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil {
			return
		}
		pause = min(max(2*pause, firstPause), lastPause)
		e.pauses.Add(1)
		if err != errNoDescriptors { // the budget logs that one
			s.engine.lines.reportAccept(s.owner.Load().key, err)
		}
		sleep(s.ctx, pause)
	}
}

// whyNoRoom tells why a client in hand was given no descriptors.
func (s *tcpSocket) whyNoRoom(c connection, err error) Reason {
	switch {
	case err == errNoDescriptors:
		return DescriptorLimit
	case c.claim.tenure.over.Load():
		return ServiceRemoved
	}
	return Shutdown
}

// remote is the address of a client; one of IPv4 is the same on a socket of either family.
func remote(client *net.TCPConn) netip.AddrPort {
	addr := client.RemoteAddr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
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
func (s *tcpSocket) serve(c connection, client *net.TCPConn) {
	e := s.engine
	defer e.budget.release(2)
	backend, endpoint, failed := e.dialer.reach(e.ctx, c.choose())
	for owner := s.owner.Load(); backend == nil && len(failed) == 0 && owner != c.claim; owner = s.owner.Load() {
		// The port changed hands before we had chosen, and who had it has no endpoints any more.
		if !c.follow(owner) {
			reset(client)
			return
		}
		backend, endpoint, failed = e.dialer.reach(e.ctx, c.choose())
	}
	if backend == nil {
		reset(client)
		why := whyNone(failed)
		switch {
		case e.ctx.Err() != nil:
			why = Shutdown
		case c.claim.tenure.isOver():
			why = ServiceRemoved
		}
		c.turnAway(why, failed)
		return
	}
	c.given(endpoint, failed)
	ctx, release := e.tenures(c.claim.tenure, &endpoint.experience().tenure)
	defer release()
	r := newRelay(client, backend, e.cfg, c.claim.tally)
	why := r.run(ctx)
	c.sent, c.received = uint64(r.backend.sent.Load()), uint64(r.client.sent.Load())
	c.end(why)
}

// tenures returns a context that ends with the engine's, and when one of the tenures wants its
// connections closed. Where none ever will, it is the engine's own.
func (e *portable) tenures(tenures ...*tenure) (ctx context.Context, release func()) {
	if !e.cfg.OnRemoval.Close {
		return e.ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(e.ctx)
	var stops []func() bool
	for _, t := range tenures {
		ends := t.context()
		stops = append(stops, context.AfterFunc(ends, func() { cancel(context.Cause(ends)) }))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}
