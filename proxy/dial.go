package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"kubeproxy/registry"
)

// A dialer finds for a TCP client the endpoint that answers.
type dialer struct {
	resolver *resolver
	attempt  time.Duration // for one endpoint
	total    time.Duration // for all that are tried on behalf of one client
	dial     func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error)
}

func newDialer(cfg Config, resolver *resolver) *dialer {
	tcp := net.Dialer{KeepAliveConfig: keepAlive(cfg), Control: prepareDial}
	return &dialer{
		resolver: resolver,
		attempt:  cfg.DialTimeout,
		total:    cfg.DialTotalTimeout,
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

// A failure is an endpoint that did not answer, and why.
type failure struct {
	endpoint *endpoint
	err      error
}

// reach connects to the endpoint whose turn it is or, when that one refuses or stays silent, to the
// next one, and none twice (v0.4 gave up after the first: D37). It returns nil when none answered,
// and in any case those that did not.
func (d *dialer) reach(ctx context.Context, r *rotation) (*net.TCPConn, *endpoint, []failure) {
	var failed []failure
	deadline := time.Now().Add(d.total)
	c := r.choose(registry.TCP)
	for left := len(c.set.endpoints); left > 0; left-- {
		patience, ok := d.share(time.Until(deadline), left)
		if !ok {
			break
		}
		e, ok := c.next()
		if !ok {
			break
		}
		conn, err := d.try(ctx, e.addr, patience)
		if err == nil {
			e.answered(registry.TCP)
			c.reached()
			return conn, e, failed
		}
		failed = append(failed, failure{e, err})
		switch {
		case ctx.Err() != nil, isShortage(err):
			return nil, nil, failed // our own end; the next endpoint would fare no better
		case errors.Is(err, errOwnListener): // the record is wrong, and not for how long it takes
		case isTimeout(err) && patience < d.attempt/2: // silence as short as that proves nothing
		default:
			c.failed()
		}
	}
	return nil, nil, failed
}

// share is how long the next attempt may take when so much of the total is left for so many
// endpoints: an attempt's own time, but never more than half of what is left while there are
// others to try. It is not ok to begin when little would be left to succeed in.
func (d *dialer) share(remaining time.Duration, left int) (patience time.Duration, ok bool) {
	if left > 1 {
		remaining /= 2
	}
	patience = min(d.attempt, remaining)
	return patience, patience >= min(d.attempt, d.total)/8
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

// isShortage tells whether it was our own descriptors, or the system's, that there were none left of.
func isShortage(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
