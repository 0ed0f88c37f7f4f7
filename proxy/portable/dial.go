package portable

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/tcp"
	"kubeproxy/registry"
)

// A dialer finds for a TCP client the endpoint that answers.
type dialer struct {
	races tcp.RaceConfig
	dial  func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error)
	work  *sync.WaitGroup // the engine's
}

func newDialer(cfg engine.Config, resolver *admit.Resolver, work *sync.WaitGroup) *dialer {
	d := net.Dialer{KeepAliveConfig: tcp.KeepAlive(cfg.TCPKeepAlive), Control: sockopt.PrepareDial}
	return &dialer{
		races: tcp.RaceConfig{Limits: &cfg, Resolver: resolver},
		work:  work,
		dial: func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
			// Not DialTCP: even without a local address it calls bind(2), which then takes a
			// local port for us alone, of the 28,000 that there are (ip_local_port_range). Without
			// bind, connections to different endpoints share them.
			conn, err := d.DialContext(ctx, "tcp", to.String())
			if err != nil {
				return nil, err
			}
			return conn.(*net.TCPConn), nil
		},
	}
}

// An outcome is the end of a dial, or of a look-up.
type outcome struct {
	id    uint32
	conn  *net.TCPConn
	addrs []netip.AddrPort
	err   error
}

// reach runs a race until an endpoint answers, and returns the connection and the endpoint; nil if none answers. The race is new, or goes on under
// a new claim (v0.4 gave up after the first endpoint: D37). Each dial and look-up has a goroutine; the race runs in this one. reach ends early
// when ctx ends, or when somebody calls callOff, which looks receives. looks may be nil.
func (d *dialer) reach(ctx context.Context, race *tcp.Race, looks func(callOff context.CancelFunc)) (*net.TCPConn, *rotation.Endpoint) {
	ctx, callOff := context.WithCancel(ctx)
	defer callOff()
	if looks != nil {
		looks(callOff)
	}
	ended, stops := make(chan outcome), make(map[uint32]context.CancelFunc)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		// Postpone never comes: this engine sets no RaceConfig.MayAttempt.
		switch step := race.Next(monotonic.Now()); step.Do {
		case tcp.Dial:
			stops[step.ID] = d.begin(ctx, ended, step.ID, func(ctx context.Context) (o outcome) {
				o.conn, o.err = d.connect(ctx, step.To)
				return o
			})
		case tcp.LookUp:
			stops[step.ID] = d.begin(ctx, ended, step.ID, func(ctx context.Context) (o outcome) {
				o.addrs, o.err = d.races.Resolver.Resolve(ctx, registry.TCP, step.Of.Addr)
				return o
			})
		case tcp.Stop:
			stops[step.ID]()
		case tcp.GiveUp:
			return nil, nil
		case tcp.Await:
			timer.Reset(step.At - monotonic.Now())
			var news <-chan struct{} // nil is never ready
			if step.News != nil {
				news = step.News.Done()
			}
			select {
			case <-news:
			case <-timer.C:
			case <-ctx.Done():
			case o := <-ended:
				if e := o.report(race); e != nil {
					return o.conn, e
				}
			}
		}
	}
	race.Abandon()
	return nil, nil
}

// begin does something in a goroutine of its own, and sends how it ended, unless it is stopped before.
func (d *dialer) begin(ctx context.Context, ended chan<- outcome, id uint32, do func(context.Context) outcome) (stop context.CancelFunc) {
	ctx, stop = context.WithCancel(ctx)
	d.work.Go(func() {
		defer stop()
		o := do(ctx)
		o.id = id
		select {
		case ended <- o:
		case <-ctx.Done():
			if o.conn != nil {
				reset(o.conn) // another was faster
			}
		}
	})
	return stop
}

// report tells the race how a dial or a look-up has ended, and returns the endpoint if it has won.
func (o *outcome) report(race *tcp.Race) *rotation.Endpoint {
	now := monotonic.Now()
	switch {
	case o.err != nil:
		race.Failed(now, o.id, o.err)
	case o.conn == nil:
		race.Resolved(now, o.id, o.addrs)
	default:
		if e := race.Connected(now, o.id); e != nil {
			return e
		}
		reset(o.conn) // the race had stopped this dial
	}
	return nil
}

// connect connects to one address.
//
// To a closed port of this machine, the kernel may give a dial that same port as its
// own, and the connection then reaches itself: it carries back to the client what the client sends.
// Package net undoes this twice and then lets it pass, so we look ourselves.
func (d *dialer) connect(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	conn, err := d.dial(ctx, to)
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // without the address, which the race tells
	}
	if err != nil {
		return nil, err
	}
	local, remote := conn.LocalAddr().(*net.TCPAddr), conn.RemoteAddr().(*net.TCPAddr)
	if local.Port == remote.Port && local.IP.Equal(remote.IP) {
		reset(conn) // a close would keep the port from its endpoint for a minute more (TIME_WAIT)
		return nil, admit.ErrReachedItself
	}
	if d.races.Resolver.Own.Reached(registry.TCP, local.AddrPort(), remote.AddrPort()) {
		reset(conn)
		return nil, admit.ErrOwnListener
	}
	return conn, nil
}
