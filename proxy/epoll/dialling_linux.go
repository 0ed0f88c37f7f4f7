package epoll

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/engine"
	"kubeproxy/registry"
)

// A dial is a [search] under way in a loop.
type dial struct {
	search   engine.Search
	attempts []attempt     // under way
	extra    int           // descriptors of the budget that they have beside the client's own; see pay
	next     time.Duration // when another is begun beside those
	until    time.Duration // when the search is over, but for names that are being looked up
	deferred bool          // the loop goes on with it in a later turn
}

// An attempt is a connection being made to one address of an endpoint, or the look-up of its name.
type attempt struct {
	fd       int32 // noDescriptor while a name is looked up
	endpoint *balance.Endpoint
	began    time.Duration // when the first address of the endpoint was tried
	until    time.Duration // when the endpoint has failed
	to       netip.AddrPort
	others   []netip.AddrPort // addresses of the endpoint that are tried when this one fails, or beside it
	next     time.Duration    // when the first of those is begun beside it
}

const noDescriptor = -1

// dialTick is how soon a client that looks for an endpoint is looked at first, and the shortest time between two looks.
const dialTick = 20 * time.Millisecond

// reach begins to look for an endpoint for c.
func (l *loop) reach(c *conn) {
	d := l.dials.take()
	cfg := &l.engine.Cfg
	*d = dial{
		search:   engine.NewSearch(c.record.Choose(), cfg.DialTimeout, cfg.DialTotalTimeout, int64(cfg.MaxDialsPerEndpoint)),
		attempts: d.attempts[:0],
		until:    l.now + cfg.DialTotalTimeout,
	}
	c.dial = d
	l.enter(c, dialling)
	l.tryNext(c)
}

// pay takes a descriptor for one more attempt, and reports whether there is one. The first of those under way has the
// descriptor that the client came with; another one beside it takes its own from the budget.
func (l *loop) pay(d *dial) bool {
	if len(d.attempts) > d.extra {
		if !l.engine.Budget.Take(1) {
			return false
		}
		d.extra++
	}
	return true
}

// repay gives back what attempts that have ended had taken.
func (l *loop) repay(d *dial) {
	if surplus := d.extra - max(0, len(d.attempts)-1); surplus > 0 {
		d.extra -= surplus
		l.engine.Budget.Release(surplus)
	}
}

// tryNext begins an attempt at the next endpoint that can be tried. When none is left and nothing is
// under way, c is turned away. Without a descriptor for it, nothing is tried beside what is under way.
func (l *loop) tryNext(c *conn) {
	for d := c.dial; !d.deferred; {
		if !l.pay(d) {
			d.next = l.now + engine.Stagger
			return
		}
		if d.deferred = d.search.Choice.Offers > 0 && !l.mayAttempt(); d.deferred {
			l.deferred = append(l.deferred, c.token(backendSide))
			return
		}
		e, _, ok := d.search.Next()
		if !ok {
			if len(d.attempts) == 0 {
				l.giveUp(c)
			}
			return
		}
		d.next = l.now + engine.Stagger
		if e.Addr.Host != "" {
			if addrs, err, ok := l.engine.Resolver.Recall(registry.TCP, e.Addr); ok {
				l.tryAddresses(c, e, addrs, err)
			} else {
				l.lookUp(c, e)
			}
			return
		}
		to := netip.AddrPortFrom(e.Addr.IP.Addr().Unmap(), e.Addr.IP.Port())
		err := l.engine.Resolver.Refuse(registry.TCP, to)
		if err == nil {
			err = l.begin(c, attempt{endpoint: e, began: l.now, until: min(l.now+l.engine.Cfg.DialTimeout, d.until), to: to})
		}
		if err == nil {
			return
		}
		d.search.Missed(e, 0, err)
	}
}

// attemptsATurn is how many attempts a loop makes in one turn for clients whose first has failed or stays silent. An
// attempt that fails at once takes 10 us, so a turn spends less than 0.1 ms on failures, however many clients
// look for an endpoint. The first attempt of a client is bounded by acceptsAtOnce and fewSessions.
const attemptsATurn = 8

// mayAttempt reports whether this turn has room for one more such attempt, and counts it.
func (l *loop) mayAttempt() bool {
	if l.attemptsOf != l.turn {
		l.attemptsOf, l.attempts = l.turn, 0
	}
	if l.attempts == attemptsATurn {
		return false
	}
	l.attempts++
	return true
}

// goOnSearching goes on with searches that earlier turns had no room for, those that have waited longest first.
func (l *loop) goOnSearching() {
	n := 0
	for ; n < len(l.deferred) && !(l.attemptsOf == l.turn && l.attempts == attemptsATurn); n++ {
		t := l.deferred[n]
		if t.kind == answering {
			if f := l.sessions.all.at(t.index, t.generation); f != nil && (*f).deferred {
				(*f).deferred = false
				l.sessions.redirect(*f)
			}
		} else if c := l.conns.at(t.index, t.generation); c != nil && c.dial != nil && c.dial.deferred {
			c.dial.deferred = false
			l.tryNext(c)
		}
	}
	l.deferred = slices.Delete(l.deferred, 0, n)
}

// begin begins an attempt, for which pay has been called. If the endpoint has answered by then, it also ends the search.
func (l *loop) begin(c *conn, a attempt) error {
	fd, errno := connect(a.to)
	if errno != 0 {
		return errno
	}
	d := c.dial
	a.fd, a.next = int32(fd), l.now+engine.Stagger
	d.attempts = append(d.attempts, a)
	last := len(d.attempts) - 1
	answered, err := l.tryEarly(c, &d.attempts[last])
	if answered {
		l.settle(c, last, 0)
		return nil
	}
	if err == nil {
		err = l.watch(fd, c.token(backendSide), news|unix.EPOLLOUT)
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
		if errno != 0 && errno != unix.EAGAIN && !lacksMemory(errno) { // of which the kernel tells only once
			c.end.Broke(engine.ClientSide, errno)
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
	case unix.EAGAIN, unix.ENOMEM, unix.ENOBUFS: // it has not answered yet
		return false, nil
	}
	return false, errno
}

// lookUp resolves the name of an endpoint beside the loop, and then tries its addresses in turn. That has time of its
// own: DialTimeout and DialTotalTimeout are for addresses that are known.
func (l *loop) lookUp(c *conn, e *balance.Endpoint) {
	c.dial.attempts = append(c.dial.attempts, attempt{fd: noDescriptor, endpoint: e, began: l.now, until: l.now + 2*admit.LookUpTimeout})
	index, generation := c.index, c.generation
	l.engine.resolve(registry.TCP, e, admit.LookUpTimeout, func(addrs []netip.AddrPort, err error) {
		l.do(func() {
			c := l.conns.at(index, generation)
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

// tryAddresses begins an attempt at an endpoint whose name was resolved. If that failed, it has failed by err.
func (l *loop) tryAddresses(c *conn, e *balance.Endpoint, addrs []netip.AddrPort, err error) {
	l.tryOthers(c, attempt{endpoint: e, began: l.now, until: l.now + l.engine.Cfg.DialTimeout, others: addrs}, err)
}

// tryOthers begins an attempt at the first of the other addresses of a that can be tried, in place of a, which failed
// by err. If there is none, and no other address of the endpoint is being tried, the endpoint has failed.
func (l *loop) tryOthers(c *conn, a attempt, err error) {
	for len(a.others) > 0 {
		a.to, a.others = a.others[0], a.others[1:]
		if err = l.begin(c, a); err == nil {
			return
		}
	}
	if !c.dial.tries(a.endpoint) {
		c.dial.search.Missed(a.endpoint, l.now-a.began, err)
		l.tryNext(c)
	}
}

// tries reports whether an attempt at an endpoint is under way.
func (d *dial) tries(e *balance.Endpoint) bool {
	return slices.ContainsFunc(d.attempts, func(a attempt) bool { return a.endpoint == e })
}

// isFirst reports whether the attempt is the first of those at its endpoint.
func (d *dial) isFirst(i int) bool {
	return slices.IndexFunc(d.attempts, func(a attempt) bool { return a.endpoint == d.attempts[i].endpoint }) == i
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
			if l.tryOthers(c, a, err); c.dial == d {
				l.repay(d)
			}
			return // of the others the kernel tells by themselves
		}
	}
}

// suspect looks whether a socket that was connected to an endpoint has reached who it was meant for, and not
// itself or a listener of ours: see connect of package portable.
func (l *loop) suspect(protocol registry.Protocol, fd int, to netip.AddrPort) error {
	local := localName(fd)
	switch {
	case local == to:
		return engine.ErrReachedItself
	case l.engine.Resolver.Own.Reached(protocol, local, to):
		return admit.ErrOwnListener
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
		}
		switch {
		case a.endpoint == won.endpoint || !d.isFirst(j):
		case a.fd == noDescriptor:
			d.search.OutrunByName(a.endpoint, l.now-a.began)
		default:
			d.search.Outrun(a.endpoint, l.now-a.began)
		}
	}
	d.search.Answered(won.endpoint)
	c.record.Given(won.endpoint, d.search.Failed)
	l.recycle(c)
	l.watchLifetimes(c)
	l.relay(c, won.fd, mask)
}

// impatient sees to a client whose endpoint has not answered yet: addresses that are silent are joined by the next
// ones of the same endpoint, and by the next endpoint.
func (l *loop) impatient(c *conn) {
	d := c.dial
	for i := 0; i < len(d.attempts); {
		a := &d.attempts[i]
		switch {
		case l.now >= a.until:
			ended := *a
			d.attempts = slices.Delete(d.attempts, i, i+1)
			ended.close()
			if !d.tries(ended.endpoint) {
				d.search.Missed(ended.endpoint, l.now-ended.began, unix.ETIMEDOUT)
			}
			continue
		case len(a.others) > 0 && l.now >= a.next && l.pay(d) && l.mayAttempt():
			beside := *a
			a.others = nil
			l.tryBeside(c, beside)
			if c.dial != d {
				return // it has answered
			}
		}
		i++
	}
	if len(d.attempts) == 0 || l.now >= d.next {
		l.tryNext(c)
	}
	if c.dial == d {
		l.repay(d)
	}
}

// tryBeside begins an attempt at the first of the other addresses of a that can be tried, beside a.
func (l *loop) tryBeside(c *conn, a attempt) {
	for len(a.others) > 0 {
		a.to, a.others = a.others[0], a.others[1:]
		if l.begin(c, a) == nil {
			return
		}
	}
}

// patience is when c is impatient next: when another endpoint is to be tried, or another address of one, or an attempt or the
// search has lasted long enough.
func (l *loop) patience(c *conn) time.Duration {
	d := c.dial
	at := d.until
	if d.next > l.now { // otherwise none is left to try
		at = min(at, d.next)
	}
	for _, a := range d.attempts {
		at = min(at, a.began+l.engine.Cfg.DialTimeout)
		if len(a.others) > 0 {
			at = min(at, a.next)
		}
	}
	return max(at, l.now+dialTick)
}

// giveUp turns c away, unless it is the service that has nothing to offer, and the port is another's
// by now.
func (l *loop) giveUp(c *conn) {
	s := &c.dial.search
	if owner := c.port.owner.Load(); len(s.Failed) > 0 || owner == c.record.Claim {
		l.end(c, s.WhyNone())
	} else if l.recycle(c); c.record.Follow(owner) {
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
func (l *loop) abandon(c *conn) []engine.Failure {
	d := c.dial
	for i, a := range d.attempts {
		if d.isFirst(i) {
			d.search.Outrun(a.endpoint, 0)
		}
		a.close()
	}
	failed := d.search.Failed
	l.recycle(c)
	return failed
}

// recycle keeps the dial of c for another client.
func (l *loop) recycle(c *conn) {
	d := c.dial
	l.engine.Budget.Release(d.extra)
	clear(d.attempts[:cap(d.attempts)])
	*d = dial{attempts: d.attempts[:0]}
	c.dial = nil
	l.dials.giveBack(d)
}
