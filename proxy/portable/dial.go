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
	"kubeproxy/proxy/balance/rotation"
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
	endpoint *rotation.Endpoint
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
func (d *dialer) reach(ctx context.Context, c rotation.Choice) (*net.TCPConn, *rotation.Endpoint, []tcp.Failure) {
	racing, callOff := context.WithCancel(ctx)
	defer callOff()
	r := &race{dialer: d, ctx: racing, search: tcp.NewSearch(c, d.attempt, d.total, d.maxDials), ended: make(chan *trial)}
	defer func() { d.budget.Release(r.extra) }()
	silence := time.NewTicker(engine.Stagger)
	defer silence.Stop()
	for len(r.trials) > 0 || r.begin() {
		select {
		case <-silence.C:
			r.begin()
		case t := <-r.ended:
			switch {
			case t.err == nil:
				r.leave(t)
				r.won(t)
				return t.conn, t.endpoint, r.search.Failed
			case ctx.Err() == nil:
				r.leave(t)
				after, _ := t.silence()
				r.search.Missed(t.endpoint, after, t.err)
				silence.Reset(engine.Stagger)
				r.begin()
			default:
				return nil, nil, r.abandoned(ctx.Err())
			}
		case <-ctx.Done():
			return nil, nil, r.abandoned(ctx.Err())
		}
	}
	return nil, nil, r.search.Failed
}

// A race is the trials of one client. All of it but the dials runs in one goroutine.
type race struct {
	*dialer
	ctx    context.Context // ends with the race
	search tcp.Search
	trials []*trial // under way
	extra  int      // descriptors of the budget that they have
	ended  chan *trial
}

// begin starts one more trial. It returns false when there is no endpoint left, or no descriptor for another dial.
func (r *race) begin() bool {
	if len(r.trials) > r.extra { // the first of those under way has the descriptor that the client came with
		if !r.budget.Take(1) {
			return false // nothing is tried beside it
		}
		r.extra++
	}
	e, patience, ok := r.search.Next()
	if !ok {
		return false
	}
	t := &trial{endpoint: e, began: time.Now()}
	r.trials = append(r.trials, t)
	r.work.Go(func() {
		t.conn, t.err = r.try(r.ctx, t, &r.search.Choice, patience)
		select {
		case r.ended <- t:
		case <-r.ctx.Done():
			if t.conn != nil {
				reset(t.conn) // another was faster
			}
		}
	})
	return true
}

// leave takes a trial that has ended out of the race, and gives its descriptor back if the rest can do without it.
func (r *race) leave(t *trial) {
	r.trials = slices.DeleteFunc(r.trials, func(other *trial) bool { return other == t })
	if surplus := r.extra - max(0, len(r.trials)-1); surplus > 0 {
		r.extra -= surplus
		r.budget.Release(surplus)
	}
}

// won records the trial whose endpoint answered, and those that it outran.
func (r *race) won(t *trial) {
	for _, other := range r.trials {
		if after, ok := other.silence(); ok {
			r.search.Outrun(other.endpoint, after)
		} else {
			r.search.OutrunByName(other.endpoint, time.Since(other.began))
		}
	}
	r.search.Answered(t.endpoint)
}

// abandoned records the trials that were under way when the client left or the time was up: no endpoint is to blame.
func (r *race) abandoned(why error) []tcp.Failure {
	for _, t := range r.trials {
		r.search.Abandoned(t.endpoint, why)
	}
	return r.search.Failed
}

// try connects to one endpoint. To look its name up has time of its own: patience is for an address that is known, and a
// name that took long to resolve is given a whole attempt. If none of its addresses answers, the name is asked for once more, as far as
// it may stand for others by now.
func (d *dialer) try(ctx context.Context, t *trial, c *rotation.Choice, patience time.Duration) (*net.TCPConn, error) {
	addrs, err, ok := d.resolver.Recall(registry.TCP, t.endpoint.Addr)
	if !ok {
		addrs, err = d.resolver.Resolve(ctx, registry.TCP, t.endpoint.Addr)
		patience = d.attempt
	}
	t.dialling.Store(int64(monotonic.Now()))
	if err != nil {
		return nil, err
	}
	addrs = c.Arrange(t.endpoint, addrs)
	conn, err := d.connectAny(ctx, addrs, patience)
	if err == nil || ctx.Err() != nil || !d.resolver.Doubt(registry.TCP, t.endpoint.Addr, addrs) {
		return conn, err
	}
	fresh, lookUpErr := d.resolver.Resolve(ctx, registry.TCP, t.endpoint.Addr)
	fresh = slices.DeleteFunc(fresh, func(a netip.AddrPort) bool { return slices.Contains(addrs, a) })
	if lookUpErr != nil || len(fresh) == 0 {
		return nil, err
	}
	return d.connectAny(ctx, c.Arrange(t.endpoint, fresh), d.attempt)
}

// connectAny connects to the address that answers first, within patience.
func (d *dialer) connectAny(ctx context.Context, addrs []netip.AddrPort, patience time.Duration) (*net.TCPConn, error) {
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
// To a closed port of this machine, the kernel may give a dial that same port as its
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
