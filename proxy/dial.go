package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"kubeproxy/registry"
)

// A dialer finds for a TCP client the endpoint that answers.
type dialer struct {
	resolver *resolver
	attempt  time.Duration // for one endpoint
	total    time.Duration // for all that are tried on behalf of one client
	maxDials int64         // under way to one endpoint
	dial     func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error)
	work     *sync.WaitGroup // the engine's
}

func newDialer(cfg Config, resolver *resolver, work *sync.WaitGroup) *dialer {
	tcp := net.Dialer{KeepAliveConfig: keepAlive(cfg), Control: prepareDial}
	return &dialer{
		resolver: resolver,
		attempt:  cfg.DialTimeout,
		total:    cfg.DialTotalTimeout,
		maxDials: int64(cfg.MaxDialsPerEndpoint),
		work:     work,
		dial: func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
			// Not DialTCP: even without a local address it calls bind(2), which then takes a
			// local port for us alone, of the 28,000 that there are (ip_local_port_range). Without
			// bind, connections to different endpoints share them.
			conn, err := tcp.DialContext(ctx, "tcp", to.String())
			if err != nil {
				return nil, err
			}
			return conn.(*net.TCPConn), nil
		},
	}
}

// A trial is an attempt to connect to one endpoint, and what came of it.
type trial struct {
	endpoint *endpoint
	began    time.Time
	conn     *net.TCPConn
	err      error
}

// reach connects to the endpoint that answers first, of those that [search] says to try (v0.4 gave up
// after the first: D37). It returns nil when none answered, and in any case those that did not.
func (d *dialer) reach(ctx context.Context, c choice) (*net.TCPConn, *endpoint, []failure) {
	s := newSearch(c, d.attempt, d.total, d.maxDials)
	racing, callOff := context.WithCancel(ctx)
	defer callOff()
	var trials []*trial // under way
	ended := make(chan *trial)
	begin := func() bool {
		e, patience, ok := s.next()
		if !ok {
			return false
		}
		t := &trial{endpoint: e, began: time.Now()}
		trials = append(trials, t)
		d.work.Go(func() {
			t.conn, t.err = d.try(racing, e.addr, patience)
			select {
			case ended <- t:
			case <-racing.Done():
				if t.conn != nil {
					reset(t.conn) // another was faster
				}
			}
		})
		return true
	}
	silence := time.NewTicker(stagger)
	defer silence.Stop()
	for len(trials) > 0 || begin() {
		select {
		case <-silence.C:
			begin()
			continue
		case t := <-ended:
			trials = slices.DeleteFunc(trials, func(other *trial) bool { return other == t })
			if t.err == nil {
				for _, other := range trials {
					s.outrun(other.endpoint, time.Since(other.began))
				}
				s.answered(t.endpoint)
				return t.conn, t.endpoint, s.failed
			}
			if ctx.Err() == nil {
				s.missed(t.endpoint, time.Since(t.began), t.err)
				silence.Reset(stagger)
				begin()
				continue
			}
			trials = append(trials, t)
		case <-ctx.Done():
		}
		for _, t := range trials { // our own end: nobody is to blame
			s.abandoned(t.endpoint, ctx.Err())
		}
		return nil, nil, s.failed
	}
	return nil, nil, s.failed
}

// try connects to one endpoint. A host name may have several addresses: they are tried in turn, and
// share the time.
func (d *dialer) try(ctx context.Context, addr registry.Addr, patience time.Duration) (*net.TCPConn, error) {
	deadline := time.Now().Add(patience)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	addrs, err := d.resolver.resolve(ctx, registry.TCP, addr)
	if err != nil {
		return nil, err
	}
	for ; len(addrs) > 1; addrs = addrs[1:] {
		share, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(addrs)))
		conn, err := d.connect(share, addrs[0])
		cancel()
		if err == nil {
			return conn, nil
		}
	}
	return d.connect(ctx, addrs[0])
}

// errReachedItself is what an endpoint gets that is only the echo of our own dial.
var errReachedItself = errors.New("the connection reached itself")

// connect connects to one address.
//
// To a port of this machine that nobody listens on, the kernel may give a dial that same port as its
// own, and the connection then reaches itself: it carries back to the client what the client sends.
// Package net undoes this twice and then lets it pass, so we look ourselves.
func (d *dialer) connect(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	conn, err := d.dial(ctx, to)
	if err != nil {
		return nil, err
	}
	local, remote := conn.LocalAddr().(*net.TCPAddr), conn.RemoteAddr().(*net.TCPAddr)
	if local.Port == remote.Port && local.IP.Equal(remote.IP) {
		reset(conn) // a close would keep the port from its endpoint for a minute more (TIME_WAIT)
		return nil, errReachedItself
	}
	if d.resolver.own.reached(registry.TCP, local.AddrPort(), remote.AddrPort()) {
		reset(conn)
		return nil, errOwnListener
	}
	return conn, nil
}

// isTimeout tells whether an attempt ended because its time was up.
func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}
