package portable

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/tcp"
	"kubeproxy/registry"
)

// A dialer finds for a TCP client the endpoint that answers.
type dialer struct {
	resolver *admit.Resolver
	attempt  time.Duration // for one endpoint
	total    time.Duration // for all that are tried on behalf of one client
	maxDials int64         // under way to one endpoint
	budget   *admit.Budget // of descriptors for attempts beside the first
	dial     func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error)
	work     *sync.WaitGroup // the engine's
}

func newDialer(cfg engine.Config, resolver *admit.Resolver, work *sync.WaitGroup) *dialer {
	tcp := net.Dialer{KeepAliveConfig: tcp.KeepAlive(cfg.TCPKeepAlive), Control: sockopt.PrepareDial}
	return &dialer{
		resolver: resolver,
		attempt:  cfg.DialTimeout,
		total:    cfg.DialTotalTimeout,
		maxDials: int64(cfg.MaxDialsPerEndpoint),
		budget:   resolver.Budget,
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
	endpoint *balance.Endpoint
	began    time.Time
	dialling atomic.Int64 // since when an address is known, by the clock of Now; 0 while its name is looked up
	conn     *net.TCPConn
	err      error
}

// silence returns for how long an address of the endpoint has been dialled; false while its name is looked up.
func (t *trial) silence() (time.Duration, bool) {
	since := t.dialling.Load()
	return monotonic.Now() - time.Duration(since), since != 0
}

// reach connects to the endpoint that answers first, of those that [tcp.Search] says to try (v0.4 gave up
// after the first: D37). It returns nil when none answered, and in any case those that did not.
func (d *dialer) reach(ctx context.Context, c balance.Choice) (*net.TCPConn, *balance.Endpoint, []tcp.Failure) {
	s := tcp.NewSearch(c, d.attempt, d.total, d.maxDials)
	racing, callOff := context.WithCancel(ctx)
	defer callOff()
	var trials []*trial // under way
	extra := 0          // descriptors of the budget that they have
	defer func() { d.budget.Release(extra) }()
	ended := make(chan *trial)
	begin := func() bool {
		if len(trials) > extra { // the first of those under way has the descriptor that the client came with
			if !d.budget.Take(1) {
				return false // nothing is tried beside it
			}
			extra++
		}
		e, patience, ok := s.Next()
		if !ok {
			return false
		}
		t := &trial{endpoint: e, began: time.Now()}
		trials = append(trials, t)
		d.work.Go(func() {
			t.conn, t.err = d.try(racing, t, patience)
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
	silence := time.NewTicker(engine.Stagger)
	defer silence.Stop()
	for len(trials) > 0 || begin() {
		select {
		case <-silence.C:
			begin()
			continue
		case t := <-ended:
			trials = slices.DeleteFunc(trials, func(other *trial) bool { return other == t })
			if surplus := extra - max(0, len(trials)-1); surplus > 0 {
				extra -= surplus
				d.budget.Release(surplus)
			}
			if t.err == nil {
				for _, other := range trials {
					if after, ok := other.silence(); ok {
						s.Outrun(other.endpoint, after)
					} else {
						s.OutrunByName(other.endpoint, time.Since(other.began))
					}
				}
				s.Answered(t.endpoint)
				return t.conn, t.endpoint, s.Failed
			}
			if ctx.Err() == nil {
				after, _ := t.silence()
				s.Missed(t.endpoint, after, t.err)
				silence.Reset(engine.Stagger)
				begin()
				continue
			}
			trials = append(trials, t)
		case <-ctx.Done():
		}
		for _, t := range trials { // our own end: nobody is to blame
			s.Abandoned(t.endpoint, ctx.Err())
		}
		return nil, nil, s.Failed
	}
	return nil, nil, s.Failed
}

// try connects to one endpoint. To look its name up has time of its own: patience is for an address that is known, and a
// name that took long to resolve is given a whole attempt.
func (d *dialer) try(ctx context.Context, t *trial, patience time.Duration) (*net.TCPConn, error) {
	addrs, err, ok := d.resolver.Recall(registry.TCP, t.endpoint.Addr)
	if !ok {
		addrs, err = d.resolver.Resolve(ctx, registry.TCP, t.endpoint.Addr)
		patience = d.attempt
	}
	t.dialling.Store(int64(monotonic.Now()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if len(addrs) == 1 {
		return d.connect(ctx, addrs[0])
	}
	return d.race(ctx, addrs)
}

// race connects to the address that answers first. Beside one that is silent the next is tried after stagger, if there is
// a descriptor for it.
func (d *dialer) race(ctx context.Context, addrs []netip.AddrPort) (*net.TCPConn, error) {
	type outcome struct {
		conn *net.TCPConn
		err  error
	}
	racing, callOff := context.WithCancel(ctx)
	defer callOff()
	ended, running := make(chan outcome), 0
	begin := func() {
		beside := running > 0
		if len(addrs) == 0 || beside && !d.budget.Take(1) {
			return
		}
		to := addrs[0]
		addrs = addrs[1:]
		running++
		d.work.Go(func() {
			if beside {
				defer d.budget.Release(1)
			}
			conn, err := d.connect(racing, to)
			select {
			case ended <- outcome{conn, err}:
			case <-racing.Done():
				if conn != nil {
					reset(conn)
				}
			}
		})
	}
	silence := time.NewTicker(engine.Stagger)
	defer silence.Stop()
	for begin(); ; {
		select {
		case <-silence.C:
			begin()
		case o := <-ended:
			if running--; o.err == nil {
				return o.conn, nil
			}
			silence.Reset(engine.Stagger)
			if begin(); running == 0 {
				return nil, o.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

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
		return nil, admit.ErrReachedItself
	}
	if d.resolver.Own.Reached(registry.TCP, local.AddrPort(), remote.AddrPort()) {
		reset(conn)
		return nil, admit.ErrOwnListener
	}
	return conn, nil
}
