package portable

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxyproto"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// listenTCP opens the socket of a port.
func (e *Engine) listenTCP(id registry.ListenerID, owner *atomic.Pointer[engine.Claim]) (engine.Socket, error) {
	listener, err := e.OpenTCP(id)
	if err != nil {
		return nil, err
	}
	s := &tcpSocket{engine: e, listener: listener, accept: listener.AcceptTCP, owner: owner, port: uint16(listener.Addr().(*net.TCPAddr).Port)}
	s.ctx, s.stop = context.WithCancel(e.Ctx)
	serving := e.serving
	e.Work.Go(func() {
		if waitFor(s.ctx, serving) {
			s.acceptAll()
		}
	})
	return s, nil
}

// Ready does not wait: a goroutine of its own accepts the clients.
func (s *tcpSocket) Ready() error { return nil }

// OwnerChanged does nothing: TCP connections outlive the claim they began under.
func (s *tcpSocket) OwnerChanged() {}

// Close returns when the port is free. The kernel resets the clients in its queue, and acceptAll
// the one it may have in hand.
func (s *tcpSocket) Close() {
	s.listener.Close()
	s.stop()
	s.engine.Budget.ReleaseOfListener()
}

// Drain closes the port: connections go on.
func (s *tcpSocket) Drain() { s.Close() }

// acceptAll accepts clients until the socket is closed. It waits for nothing but them and room for
// them (v0.4 dialled in this loop, so that one dead endpoint held up all clients: D36), and however
// accepting fails it neither spins nor fills the log (D38).
func (s *tcpSocket) acceptAll() {
	e := s.engine
	var pause time.Duration
	for {
		client, err := s.accept()
		if err == nil {
			client.SetKeepAliveConfig(tcp.KeepAlive(e.Cfg.TCPKeepAlive)) // fails only when it has gone
			// Package net shows no client without accepting it: at a limit one waits here, the others in the kernel's queue.
			for s.queue.Waits(&e.Base, s.owner.Load()) && s.ctx.Err() == nil {
				sleep(s.ctx, tcp.LimitPoll)
			}
			c, ok := tcp.Admit(&e.Base, s.owner.Load(), s.port, remote(client))
			if !ok {
				reset(client)
				continue
			}
			if err = e.Budget.Acquire(s.ctx, 2); err == nil {
				pause = 0
				e.Work.Go(func() { s.serve(c, client) })
				continue
			}
			reset(client)
			c.TurnAway(s.whyNoRoom(c, err), nil)
		}
		if errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil {
			return
		}
		pause = min(max(2*pause, engine.FirstPause), engine.LastPause)
		e.Pauses.Add(1)
		if err != admit.ErrNoDescriptors { // the budget logs that one
			s.engine.Lines.ReportAccept(s.owner.Load().Key, err)
		}
		sleep(s.ctx, pause)
	}
}

// whyNoRoom tells why a client in hand was given no descriptors.
func (s *tcpSocket) whyNoRoom(c tcp.Connection, err error) traffic.Reason {
	switch {
	case err == admit.ErrNoDescriptors:
		return traffic.DescriptorLimit
	case c.Claim.Lifetime.IsOver():
		return traffic.ServiceRemoved
	}
	return traffic.Shutdown
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
func (s *tcpSocket) serve(c tcp.Connection, client *net.TCPConn) {
	e := s.engine
	defer e.Budget.Release(2)
	known := &connection{conn: client, account: c.Now(), began: time.Now()}
	place := e.roll.add(known)
	defer e.roll.remove(place)
	var said []byte
	if c.AwaitsHeader() {
		var ok bool
		if said, ok = e.readHeader(&c, client, known.isKilled); !ok {
			reset(client)
			return
		}
		known.become(c.Now()) // an operator may end the client before it has an endpoint
	}
	var race tcp.Race
	race.BeginFor(&c, s.owner, &e.dialer.races, monotonic.Now())
	backend, endpoint := e.dialer.reach(e.Ctx, &race, known.looks)
	for owner := race.NewOwner(); backend == nil && owner != nil && e.Ctx.Err() == nil && !known.isKilled(); owner = race.NewOwner() {
		// The port changed hands before we had an endpoint, or its service has renewed its claim while the client waits.
		if !race.Follow(owner, monotonic.Now()) {
			reset(client)
			return
		}
		known.become(c.Now())
		backend, endpoint = e.dialer.reach(e.Ctx, &race, known.looks)
	}
	if backend == nil {
		reset(client)
		why := race.WhyNone()
		switch {
		case known.isKilled():
			why = traffic.Killed
		case e.Ctx.Err() != nil:
			why = traffic.Shutdown
		}
		c.TurnAway(why, race.Failures())
		return
	}
	if e.Cfg.NoteLocal {
		c.GoesFrom(backend.LocalAddr().(*net.TCPAddr).AddrPort())
	}
	c.Given(endpoint, race.Failures())
	ctx, release := e.lifetimes(c.Lifetimes())
	defer release()
	r := newRelay(client, backend, &e.Cfg, c.Claim.Tally, &c)
	if c.WantsHeader() {
		r.backend.header = c.AppendHeader(nil, client.LocalAddr().(*net.TCPAddr).AddrPort())
	}
	r.backend.said = said
	if !known.relayed(c.Now(), r) {
		r.cut(traffic.Killed)
	}
	why := r.run(ctx)
	c.Sent, c.Received = uint64(r.backend.sent.Load()), uint64(r.client.sent.Load())
	c.End(why)
}

// readHeader reads the PROXY header by which a client says who it is, and returns what the client said after it. False: the client is not let
// in, and its account is closed.
func (e *Engine) readHeader(c *tcp.Connection, client *net.TCPConn, isKilled func() bool) (said []byte, ok bool) {
	client.SetReadDeadline(time.Now().Add(tcp.HeaderTimeout)) // fails on a connection that is closed, and so does reading
	stop := context.AfterFunc(e.Ctx, func() { client.SetReadDeadline(aLongTimeAgo) })
	defer stop()
	if isKilled() { // before it had this deadline
		client.SetReadDeadline(aLongTimeAgo)
	}
	buf := make([]byte, 512) // most headers are shorter
	for n := 0; ; {
		if n == len(buf) {
			buf = append(buf, make([]byte, min(n, proxyproto.MaxHeader-n))...)
		}
		m, err := client.Read(buf[n:])
		n += m
		h, length, bad := proxyproto.Parse(buf[:n], registry.TCP)
		switch {
		case isKilled():
			c.TurnAway(traffic.Killed, nil)
		case e.Ctx.Err() != nil:
			c.TurnAway(traffic.Shutdown, nil)
		case length > 0:
			return buf[length:n], c.Introduce(h, buf[:length])
		case bad != nil:
			c.RejectHeader(n, bad)
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.RejectHeader(n, nil)
		case err != nil:
			c.RejectHeader(n, err)
		default:
			continue
		}
		return nil, false
	}
}

// lifetimes returns a context that ends with the engine's, or when one of the lifetimes wants its connections closed. Without any it is the
// engine's own.
func (e *Engine) lifetimes(lifetimes []*removal.Lifetime) (ctx context.Context, release func()) {
	if len(lifetimes) == 0 {
		return e.Ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(e.Ctx)
	var stops []func() bool
	for _, t := range lifetimes {
		ends := t.Context()
		stops = append(stops, context.AfterFunc(ends, func() { cancel(context.Cause(ends)) }))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}
