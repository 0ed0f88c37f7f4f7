package epoll

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/relay"
	"kubeproxy/proxy/epoll/search"
	"kubeproxy/proxy/epoll/slab"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/proxyproto"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A dialler finds endpoints for the clients of a loop, and hands those that have one to the relays. How a client is offered
// endpoints is what [tcp.Search] says.
type dialler struct {
	engine   *engine.Base
	turn     *reactor.Turn
	poller   *reactor.Poller
	requests *reactor.Requests
	searches *search.Scheduler
	conns    *relay.Conns
	relays   *relay.Relays
	dials    map[int32]*dial // by the index of the connection
	spare    slab.FreeList[dial]
	peeked   [proxyproto.MaxHeader]byte // see meet
}

// A dial is an [tcp.Search] under way.
type dial struct {
	search   tcp.Search
	attempts []attempt     // under way
	extra    int           // descriptors of the budget that they have beside the client's own; see pay
	next     time.Duration // when another is begun beside those
	until    time.Duration // when the search is over, but for names that are being looked up
	deferred bool          // the loop goes on with it in a later turn
}

// An attempt is a connection being made to one address of an endpoint, or the look-up of its name.
type attempt struct {
	fd       int32 // socket.None while a name is looked up
	endpoint *rotation.Endpoint
	began    time.Duration // when the first address of the endpoint was tried
	until    time.Duration // when the endpoint has failed
	to       netip.AddrPort
	addrs    []netip.AddrPort // of the name of the endpoint; nil: it is no name, or was asked for once more
	others   []netip.AddrPort // of them: those that are tried when this one fails, or beside it
	next     time.Duration    // when the first of those is begun beside it
}

// reach begins to look for an endpoint for c.
func (ds *dialler) reach(c *relay.Conn) {
	d := ds.spare.Take()
	cfg := &ds.engine.Cfg
	*d = dial{
		search:   tcp.NewSearch(c.Record.Choose(), cfg.DialTimeout, cfg.DialTotalTimeout, int64(cfg.MaxDialsPerEndpoint)),
		attempts: d.attempts[:0],
		until:    ds.turn.Now + cfg.DialTotalTimeout,
	}
	ds.dials[c.Index()] = d
	ds.conns.Enter(c, relay.Dialling)
	ds.tryNext(c)
}

// dialOf returns the dial of c; nil: it does not look for an endpoint, or has ended.
func (ds *dialler) dialOf(c *relay.Conn) *dial {
	if c.Phase() != relay.Dialling {
		return nil
	}
	return ds.dials[c.Index()]
}

// pay takes a descriptor for one more attempt, and reports whether there is one. The first of those under way has the
// descriptor that the client came with; another one beside it takes its own from the budget.
func (ds *dialler) pay(d *dial) bool {
	if len(d.attempts) > d.extra {
		if !ds.engine.Budget.Take(1) {
			return false
		}
		d.extra++
	}
	return true
}

// repay gives back what attempts that have ended had taken.
func (ds *dialler) repay(d *dial) {
	if surplus := d.extra - max(0, len(d.attempts)-1); surplus > 0 {
		d.extra -= surplus
		ds.engine.Budget.Release(surplus)
	}
}

// tryNext begins an attempt at the next endpoint that can be tried. When none is left and nothing is
// under way, c is turned away. Without a descriptor for it, nothing is tried beside what is under way.
func (ds *dialler) tryNext(c *relay.Conn) {
	for d := ds.dialOf(c); !d.deferred; {
		if !ds.pay(d) {
			d.next = ds.turn.Now + engine.Stagger
			return
		}
		if d.deferred = d.search.Choice.Offers() > 0 && !ds.searches.MayAttempt(); d.deferred {
			ds.searches.Postpone(c.Token(relay.BackendSide))
			return
		}
		e, _, ok := d.search.Next()
		if !ok {
			if len(d.attempts) == 0 {
				ds.giveUp(c)
			}
			return
		}
		d.next = ds.turn.Now + engine.Stagger
		if e.Addr.Host != "" {
			if addrs, err, ok := ds.engine.Resolver.Recall(registry.TCP, e.Addr); ok {
				ds.tryAddresses(c, e, addrs, err)
			} else {
				ds.lookUp(c, e, nil)
			}
			return
		}
		to := netip.AddrPortFrom(e.Addr.IP.Addr().Unmap(), e.Addr.IP.Port())
		err := ds.engine.Resolver.Refuse(registry.TCP, to)
		if err == nil {
			err = ds.begin(c, attempt{endpoint: e, began: ds.turn.Now, until: min(ds.turn.Now+ds.engine.Cfg.DialTimeout, d.until), to: to})
		}
		if err == nil {
			return
		}
		d.search.Missed(e, 0, err)
	}
}

// search goes on with the search of c, if that was left to a later turn.
func (ds *dialler) search(c *relay.Conn) {
	if d := ds.dialOf(c); d != nil && d.deferred {
		d.deferred = false
		ds.tryNext(c)
		ds.lookAgain(c)
	}
}

// begin begins an attempt, for which pay has been called. If the endpoint has answered by then, it also ends the search.
func (ds *dialler) begin(c *relay.Conn, a attempt) error {
	fd, errno := socket.Connect(a.to)
	if errno != 0 {
		return errno
	}
	d := ds.dialOf(c)
	a.fd, a.next = int32(fd), ds.turn.Now+engine.Stagger
	d.attempts = append(d.attempts, a)
	last := len(d.attempts) - 1
	answered, err := ds.tryEarly(c, &d.attempts[last])
	if answered {
		ds.settle(c, last, 0)
		return nil
	}
	if err == nil {
		err = ds.poller.Watch(fd, c.Token(relay.BackendSide), relay.News|unix.EPOLLOUT)
	}
	if err != nil {
		d.attempts = d.attempts[:last]
		socket.Close(fd)
	}
	return err
}

// tryEarly sends what the client has said already to an endpoint that is being connected to, and tells
// whether that went well. A near endpoint takes it: its connection stands by then, and not one turn of the
// loop was waited for it.
func (ds *dialler) tryEarly(c *relay.Conn, a *attempt) (answered bool, err error) {
	if len(ds.dialOf(c).attempts) != 1 || c.HoldsEarly() || ds.searches.Suspect(registry.TCP, int(a.fd), a.to) != nil {
		return false, nil
	}
	return ds.relays.SendEarly(c, int(a.fd))
}

// lookUp resolves the name of an endpoint beside the loop, and then tries its addresses in turn, but for those that were tried before. That
// has time of its own: DialTimeout and DialTotalTimeout are for addresses that are known.
func (ds *dialler) lookUp(c *relay.Conn, e *rotation.Endpoint, tried []netip.AddrPort) {
	d := ds.dialOf(c)
	d.attempts = append(d.attempts, attempt{fd: socket.None, endpoint: e, began: ds.turn.Now, until: ds.turn.Now + 2*admit.LookUpTimeout})
	t := c.Token(relay.BackendSide)
	ds.searches.LookUp(registry.TCP, e, admit.LookUpTimeout, func(addrs []netip.AddrPort, err error) {
		c := ds.conns.At(t.Index, t.Generation)
		if c == nil {
			return
		}
		d := ds.dialOf(c)
		if d == nil {
			return
		}
		i := slices.IndexFunc(d.attempts, func(a attempt) bool { return a.fd == socket.None && a.endpoint == e })
		if i < 0 {
			return // its time was up
		}
		d.attempts = slices.Delete(d.attempts, i, i+1)
		if tried == nil {
			ds.tryAddresses(c, e, addrs, err)
		} else {
			ds.tryFresh(c, e, addrs, tried)
		}
		ds.lookAgain(c)
	})
}

// tryAddresses begins an attempt at an endpoint whose name was resolved. If that failed, it has failed by err.
func (ds *dialler) tryAddresses(c *relay.Conn, e *rotation.Endpoint, addrs []netip.AddrPort, err error) {
	addrs = ds.dialOf(c).search.Choice.Arrange(e, addrs)
	ds.tryOthers(c, attempt{endpoint: e, began: ds.turn.Now, until: ds.turn.Now + ds.engine.Cfg.DialTimeout, addrs: addrs, others: addrs}, err)
}

// tryFresh begins an attempt at those addresses of an endpoint that were not tried before its name was asked for once more.
func (ds *dialler) tryFresh(c *relay.Conn, e *rotation.Endpoint, addrs, tried []netip.AddrPort) {
	addrs = slices.DeleteFunc(addrs, func(a netip.AddrPort) bool { return slices.Contains(tried, a) })
	addrs = ds.dialOf(c).search.Choice.Arrange(e, addrs)
	ds.tryOthers(c, attempt{endpoint: e, began: ds.turn.Now, until: ds.turn.Now + ds.engine.Cfg.DialTimeout, others: addrs}, errStale)
}

// errStale is what an endpoint gets whose addresses all failed, and whose name stands for no others.
var errStale = errors.New("no address of the name answers")

// tryOthers begins an attempt at the first of the other addresses of a that can be tried, in place of a, which failed
// by err. If there is none, and no other address of the endpoint is being tried, the endpoint has failed.
func (ds *dialler) tryOthers(c *relay.Conn, a attempt, err error) {
	for len(a.others) > 0 {
		a.to, a.others = a.others[0], a.others[1:]
		if err = ds.begin(c, a); err == nil {
			return
		}
		err = a.failed(err)
	}
	if d := ds.dialOf(c); !d.tries(a.endpoint) && !ds.lookUpAgain(c, a) {
		d.search.Missed(a.endpoint, ds.turn.Now-a.began, err)
		ds.tryNext(c)
	}
}

// lookUpAgain asks once more for the name of an endpoint, of whose addresses a was the last to fail, if it may stand for others by now.
func (ds *dialler) lookUpAgain(c *relay.Conn, a attempt) bool {
	if a.addrs == nil || !ds.engine.Resolver.Doubt(registry.TCP, a.endpoint.Addr, a.addrs) {
		return false
	}
	ds.lookUp(c, a.endpoint, a.addrs)
	return true
}

// tries reports whether an attempt at an endpoint is under way.
func (d *dial) tries(e *rotation.Endpoint) bool {
	return slices.ContainsFunc(d.attempts, func(a attempt) bool { return a.endpoint == e })
}

// isFirst reports whether the attempt is the first of those at its endpoint.
func (d *dial) isFirst(i int) bool {
	return slices.IndexFunc(d.attempts, func(a attempt) bool { return a.endpoint == d.attempts[i].endpoint }) == i
}

// progress looks which of the attempts of c the kernel has decided.
func (ds *dialler) progress(c *relay.Conn, mask uint32) {
	d := ds.dialOf(c)
	for i := 0; i < len(d.attempts); i++ {
		a := d.attempts[i]
		if a.fd == socket.None {
			continue
		}
		connected, err := mask == unix.EPOLLOUT, error(nil) // so it is nearly always
		if !connected || len(d.attempts) > 1 {
			connected, err = socket.Outcome(int(a.fd))
		}
		if connected {
			if err = ds.searches.Suspect(registry.TCP, int(a.fd), a.to); err == nil {
				ds.settle(c, i, mask)
				return
			}
		}
		if err != nil {
			socket.ResetOnClose(int(a.fd)) // had it reached itself, a close would keep the port from its endpoint for a minute (TIME_WAIT)
			socket.Close(int(a.fd))
			d.attempts = slices.Delete(d.attempts, i, i+1)
			if ds.tryOthers(c, a, a.failed(err)); ds.dialOf(c) == d {
				ds.repay(d)
				ds.lookAgain(c)
			}
			return // of the others the kernel tells by themselves
		}
	}
}

// settle ends the search with the attempt that has succeeded.
func (ds *dialler) settle(c *relay.Conn, i int, mask uint32) {
	d := ds.dialOf(c)
	won := d.attempts[i]
	for j, a := range d.attempts {
		if j != i {
			a.close()
		}
		switch {
		case a.endpoint == won.endpoint || !d.isFirst(j):
		case a.fd == socket.None:
			d.search.OutrunByName(a.endpoint, ds.turn.Now-a.began)
		default:
			d.search.Outrun(a.endpoint, ds.turn.Now-a.began)
		}
	}
	d.search.Answered(won.endpoint)
	c.Record.Given(won.endpoint, d.search.Failed)
	if ds.engine.Cfg.NoteLocal {
		c.Record.GoesFrom(socket.LocalName(int(won.fd)))
	}
	ds.recycle(c)
	ds.relays.Begin(c, won.fd, mask)
}

// look looks at c, whose timer has ended, and sets its timer anew unless that has ended its search.
func (ds *dialler) look(c *relay.Conn) {
	ds.impatient(c)
	ds.lookAgain(c)
}

// lookAgain sets the timer of c anew, unless it has left its search.
func (ds *dialler) lookAgain(c *relay.Conn) {
	if ds.dialOf(c) != nil {
		ds.conns.LookAt(c, ds.patience(c))
	}
}

// impatient sees to a client whose endpoint has not answered yet: addresses that are silent are joined by the next
// ones of the same endpoint, and by the next endpoint.
func (ds *dialler) impatient(c *relay.Conn) {
	d := ds.dialOf(c)
	for i := 0; i < len(d.attempts); {
		a := &d.attempts[i]
		switch {
		case ds.turn.Now >= a.until:
			ended := *a
			d.attempts = slices.Delete(d.attempts, i, i+1)
			ended.close()
			if !d.tries(ended.endpoint) && !ds.lookUpAgain(c, ended) {
				d.search.Missed(ended.endpoint, ds.turn.Now-ended.began, ended.failed(unix.ETIMEDOUT))
			}
			continue
		case len(a.others) > 0 && ds.turn.Now >= a.next && ds.pay(d) && ds.searches.MayAttempt():
			beside := *a
			a.others = nil
			ds.tryBeside(c, beside)
			if ds.dialOf(c) != d {
				return // it has answered
			}
		}
		i++
	}
	if len(d.attempts) == 0 || ds.turn.Now >= d.next {
		ds.tryNext(c)
	}
	if ds.dialOf(c) == d {
		ds.repay(d)
	}
}

// tryBeside begins an attempt at the first of the other addresses of a that can be tried, beside a.
func (ds *dialler) tryBeside(c *relay.Conn, a attempt) {
	for len(a.others) > 0 {
		a.to, a.others = a.others[0], a.others[1:]
		if ds.begin(c, a) == nil {
			return
		}
	}
}

// patience is when c is impatient next: when another endpoint is to be tried, or another address of one, or an attempt has lasted long
// enough. The end of a look-up is told by itself.
func (ds *dialler) patience(c *relay.Conn) time.Duration {
	d := ds.dialOf(c)
	at := monotonic.Never
	if d.next > ds.turn.Now { // otherwise none is left to try
		at = d.next
	}
	for _, a := range d.attempts {
		at = min(at, a.until)
		if len(a.others) > 0 {
			at = min(at, a.next)
		}
	}
	return at
}

// giveUp turns c away, unless it is the service that has nothing to offer, and the port is another's
// by now.
func (ds *dialler) giveUp(c *relay.Conn) {
	s := &ds.dialOf(c).search
	if owner := c.Owner.Load(); len(s.Failed) > 0 || owner == c.Record.Claim {
		ds.turnAway(c, s.WhyNone())
	} else if ds.recycle(c); c.Record.Follow(owner) {
		ds.reach(c)
	} else { // and its books are closed
		ds.relays.Cut(c)
		ds.relays.Free(c)
	}
}

// turnAway ends c, for which there is no endpoint, or no time to find one.
func (ds *dialler) turnAway(c *relay.Conn, why traffic.Reason) {
	reason := c.Because(why)
	ds.relays.Cut(c)
	c.Record.TurnAway(reason, ds.abandon(c))
	ds.relays.Free(c)
}

// failed names the address at which an attempt has failed, where the endpoint is a name.
func (a *attempt) failed(err error) error {
	if a.endpoint.Addr.Host == "" {
		return err
	}
	return fmt.Errorf("%v: %w", a.to, err)
}

func (a *attempt) close() {
	if a.fd != socket.None {
		socket.Close(int(a.fd))
	}
}

// abandon ends the search of c, and tells who did not answer.
func (ds *dialler) abandon(c *relay.Conn) []tcp.Failure {
	d := ds.dialOf(c)
	for i, a := range d.attempts {
		if d.isFirst(i) {
			d.search.Outrun(a.endpoint, 0)
		}
		a.close()
	}
	failed := d.search.Failed
	ds.recycle(c)
	return failed
}

// recycle keeps the dial of c for another client.
func (ds *dialler) recycle(c *relay.Conn) {
	d := ds.dialOf(c)
	ds.engine.Budget.Release(d.extra)
	clear(d.attempts[:cap(d.attempts)])
	*d = dial{attempts: d.attempts[:0]}
	delete(ds.dials, c.Index())
	ds.spare.GiveBack(d)
}
