package proxy

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/registry"
)

// A dial is a [search] under way in a loop.
type dial struct {
	search   search
	attempts []attempt     // under way
	next     time.Duration // when another is begun beside those
	until    time.Duration // when the search is over
}

// An attempt is a connection being made to an endpoint, or the look-up of its name.
type attempt struct {
	fd       int32 // noDescriptor while a name is looked up
	endpoint *endpoint
	began    time.Duration
	to       netip.AddrPort
	others   []netip.AddrPort // addresses of the same endpoint, to be tried when this one fails
}

const noDescriptor = -1

// dialTick is how often those that wait for silent endpoints are looked at.
const dialTick = 20 * time.Millisecond

// reach begins to look for an endpoint for c.
func (l *loop) reach(c *conn) {
	d := l.dials.take()
	cfg := &l.engine.cfg
	*d = dial{
		search:   newSearch(c.book.choose(), cfg.DialTimeout, cfg.DialTotalTimeout, int64(cfg.MaxDialsPerEndpoint)),
		attempts: d.attempts[:0],
		until:    l.now + cfg.DialTotalTimeout,
	}
	c.dial = d
	l.enlist(c, dialling)
	l.tryNext(c)
}

// tryNext begins an attempt at the next endpoint that can be tried. When none is left and nothing is
// under way, c is turned away.
func (l *loop) tryNext(c *conn) {
	for d := c.dial; ; {
		e, _, ok := d.search.next()
		if !ok {
			if len(d.attempts) == 0 {
				l.giveUp(c)
			}
			return
		}
		d.next = l.now + stagger
		if e.addr.Host != "" {
			l.lookUp(c, e)
			return
		}
		to := netip.AddrPortFrom(e.addr.IP.Addr().Unmap(), e.addr.IP.Port())
		err := l.engine.resolver.refuse(registry.TCP, to)
		if err == nil {
			err = l.begin(c, e, to, nil)
		}
		if err == nil {
			return
		}
		d.search.missed(e, 0, err)
	}
}

// begin begins an attempt. If the endpoint has answered by then, it also ends the search.
func (l *loop) begin(c *conn, e *endpoint, to netip.AddrPort, others []netip.AddrPort) error {
	fd, errno := connect(to)
	if errno != 0 {
		return errno
	}
	d := c.dial
	d.attempts = append(d.attempts, attempt{int32(fd), e, l.now, to, others})
	last := len(d.attempts) - 1
	answered, err := l.tryEarly(c, &d.attempts[last])
	if answered {
		l.settle(c, last, 0)
		return nil
	}
	if err == nil {
		err = l.watch(fd, c.ticket(backendSide), unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLET)
	}
	if err != nil {
		d.attempts = d.attempts[:last]
		closeFD(fd)
	}
	return err
}

// tryEarly sends what the client has said already to an endpoint that is being connected to, and tells
// whether that went well. A near endpoint takes it: its connection stands by then, and not one turn of the
// loop was waited for it. Another does not take it yet, and it is held for whichever endpoint answers.
func (l *loop) tryEarly(c *conn, a *attempt) (answered bool, err error) {
	if len(c.dial.attempts) != 1 || c.backend.held != nil || l.suspect(registry.TCP, int(a.fd), a.to) != nil {
		return false, nil
	}
	n, errno := receive(int(c.client.fd), l.buffer[:])
	if n <= 0 || errno != 0 {
		if errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR { // of which the kernel tells only once
			l.name(c, &c.client, errno)
			c.client.broken = true
		}
		return false, nil
	}
	c.client.readable = n == len(l.buffer) // otherwise that was all there was
	sent, errno := send(int(a.fd), l.buffer[:n])
	if errno != 0 {
		sent = 0
	}
	l.count(c, &c.backend, sent)
	if sent < n {
		c.backend.held = l.tail(l.buffer[sent:n])
	}
	switch errno {
	case 0:
		return true, nil
	case unix.EAGAIN, unix.EINTR: // it has not answered yet
		return false, nil
	}
	return false, errno
}

// lookUp resolves the name of an endpoint beside the loop, and tries its addresses in turn.
func (l *loop) lookUp(c *conn, e *endpoint) {
	c.dial.attempts = append(c.dial.attempts, attempt{fd: noDescriptor, endpoint: e, began: l.now})
	index, era := c.index, c.era
	l.engine.resolve(registry.TCP, e, l.engine.cfg.DialTimeout, func(addrs []netip.AddrPort, err error) {
		l.do(func() {
			c := l.conns.at(index, era)
			if c == nil || c.dial == nil {
				return
			}
			d := c.dial
			i := slices.IndexFunc(d.attempts, func(a attempt) bool { return a.fd == noDescriptor && a.endpoint == e })
			if i < 0 {
				return // its time was up
			}
			d.attempts = slices.Delete(d.attempts, i, i+1)
			l.tryAddresses(c, e, addrs, err)
		})
	})
}

// tryAddresses begins an attempt at the first of an endpoint's addresses that can be tried. If there is
// none, the endpoint has failed by err.
func (l *loop) tryAddresses(c *conn, e *endpoint, addrs []netip.AddrPort, err error) {
	for i, to := range addrs {
		if err = l.begin(c, e, to, addrs[i+1:]); err == nil {
			return
		}
	}
	c.dial.search.missed(e, 0, err)
	l.tryNext(c)
}

// progress looks which of the attempts of c the kernel has decided.
func (l *loop) progress(c *conn, mask uint32) {
	d := c.dial
	for i := 0; i < len(d.attempts); i++ {
		a := d.attempts[i]
		if a.fd == noDescriptor {
			continue
		}
		connected, err := mask == unix.EPOLLOUT, error(nil) // so it is nearly always
		if !connected || len(d.attempts) > 1 {
			connected, err = outcome(int(a.fd))
		}
		if connected {
			if err = l.suspect(registry.TCP, int(a.fd), a.to); err == nil {
				l.settle(c, i, mask)
				return
			}
		}
		if err != nil {
			linger(int(a.fd)) // had it reached itself, a close would keep the port from its endpoint for a minute (TIME_WAIT)
			closeFD(int(a.fd))
			d.attempts = slices.Delete(d.attempts, i, i+1)
			l.tryAddresses(c, a.endpoint, a.others, err)
			return // of the others the kernel tells by themselves
		}
	}
}

// suspect looks whether a socket that was connected to an endpoint has reached who it was meant for, and not
// itself or a listener of ours: see [dialer.connect].
func (l *loop) suspect(protocol registry.Protocol, fd int, to netip.AddrPort) error {
	local := localName(fd)
	switch {
	case local == to:
		return errReachedItself
	case l.engine.resolver.own.reached(protocol, local, to):
		return errOwnListener
	}
	return nil
}

// settle ends the search with the attempt that has succeeded.
func (l *loop) settle(c *conn, i int, mask uint32) {
	d := c.dial
	won := d.attempts[i]
	for j, a := range d.attempts {
		if j != i {
			a.close()
			d.search.outrun(a.endpoint, l.now-a.began)
		}
	}
	d.search.answered(won.endpoint)
	c.book.given(won.endpoint, d.search.failed)
	l.recycle(c)
	l.watchTenures(c)
	l.relay(c, won.fd, mask)
}

// impatient sees to a client whose endpoint has not answered yet.
func (l *loop) impatient(c *conn) {
	d := c.dial
	for i := 0; i < len(d.attempts); {
		if a := d.attempts[i]; l.now-a.began >= l.engine.cfg.DialTimeout || l.now >= d.until {
			d.attempts = slices.Delete(d.attempts, i, i+1)
			a.close()
			d.search.missed(a.endpoint, l.now-a.began, unix.ETIMEDOUT)
		} else {
			i++
		}
	}
	if len(d.attempts) == 0 || l.now >= d.next {
		l.tryNext(c)
	}
}

// giveUp turns c away, unless it is the service that has nothing to offer, and the port is another's
// by now.
func (l *loop) giveUp(c *conn) {
	failed := c.dial.search.failed
	if owner := c.port.owner.Load(); len(failed) > 0 || owner == c.book.claim {
		l.end(c, whyNone(failed))
	} else if l.recycle(c); c.book.follow(owner) {
		l.reach(c)
	} else { // and its books are closed
		l.cut(c)
		l.free(c)
	}
}

func (a *attempt) close() {
	if a.fd != noDescriptor {
		closeFD(int(a.fd))
	}
}

// abandon ends the search of c, and tells who did not answer.
func (l *loop) abandon(c *conn) []failure {
	d := c.dial
	for _, a := range d.attempts {
		d.search.outrun(a.endpoint, 0)
		a.close()
	}
	failed := d.search.failed
	l.recycle(c)
	return failed
}

// recycle keeps the dial of c for another client.
func (l *loop) recycle(c *conn) {
	d := c.dial
	clear(d.attempts[:cap(d.attempts)])
	*d = dial{attempts: d.attempts[:0]}
	c.dial = nil
	l.dials.giveBack(d)
}
