package epoll

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/relay"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/proxyproto"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A dialler finds endpoints for the clients of a loop, and hands those that have one to the relays. What is dialled when is what
// [tcp.Race] says.
type dialler struct {
	engine   *engine.Base
	turn     *reactor.Turn
	poller   *reactor.Poller
	requests *reactor.Requests
	searches *reactor.Searches
	conns    *relay.Conns
	relays   *relay.Relays
	races    tcp.RaceConfig
	dials    map[int32]*dial // by the index of the connection
	spare    reactor.FreeList[dial]
	peeked   [proxyproto.MaxHeader]byte // see meet
}

// A dial is the search for the endpoint of one client.
type dial struct {
	race     tcp.Race
	sockets  []connecting
	deferred bool // the loop goes on with it in a later turn
}

// A connecting socket is one whose connection is not established yet.
type connecting struct {
	id uint32 // which the race knows it by
	fd int32
	to netip.AddrPort
}

// reach begins to look for an endpoint for c.
func (ds *dialler) reach(c *relay.Conn) {
	d := ds.spare.Take()
	d.race.Begin(&ds.races, c.Account.Choose(), ds.turn.Now)
	ds.dials[c.Index()] = d
	ds.conns.Enter(c, relay.Dialling)
	ds.advance(c)
}

// dialOf returns the dial of c; nil: it does not look for an endpoint, or has ended.
func (ds *dialler) dialOf(c *relay.Conn) *dial {
	if c.Phase() != relay.Dialling {
		return nil
	}
	return ds.dials[c.Index()]
}

// advance takes the steps that the race of c asks for, until it waits or is over. A race that waits for a later turn takes none before that.
func (ds *dialler) advance(c *relay.Conn) {
	for d := ds.dialOf(c); !d.deferred; {
		switch step := d.race.Next(ds.turn.Now); step.Do {
		case tcp.Dial:
			if ds.connect(c, d, connecting{id: step.ID, to: step.To}) {
				return
			}
		case tcp.LookUp:
			ds.lookUp(c, step)
		case tcp.Stop:
			d.stop(step.ID)
		case tcp.Postpone:
			d.deferred = true
			ds.searches.Postpone(c.Token(relay.BackendSide))
		case tcp.GiveUp:
			ds.giveUp(c, d)
			return
		case tcp.Await:
			ds.conns.LookAt(c, step.At)
			return
		}
	}
}

// resume goes on with the search of c, which was left to a later turn.
func (ds *dialler) resume(c *relay.Conn) {
	if d := ds.dialOf(c); d != nil && d.deferred {
		d.deferred = false
		ds.advance(c)
	}
}

// connect begins to connect s. If the endpoint has answered by then, which it reports, the search is over.
func (ds *dialler) connect(c *relay.Conn, d *dial, s connecting) (answered bool) {
	fd, errno := socket.Connect(s.to)
	if errno != 0 {
		d.race.Failed(ds.turn.Now, s.id, errno)
		return false
	}
	s.fd = int32(fd)
	answered, err := ds.sendEarly(c, d, s)
	if answered {
		ds.settle(c, d, s, 0)
		return true
	}
	if err == nil {
		err = ds.poller.Watch(fd, c.Token(relay.BackendSide), relay.News|unix.EPOLLOUT)
	}
	if err != nil {
		socket.Close(fd)
		d.race.Failed(ds.turn.Now, s.id, err)
		return false
	}
	d.sockets = append(d.sockets, s)
	return false
}

// sendEarly sends what the client has said already to the only endpoint that is being connected to, and reports
// whether the endpoint has answered. A near endpoint takes it: its connection is established by then, without waiting for a turn of the loop.
func (ds *dialler) sendEarly(c *relay.Conn, d *dial, s connecting) (answered bool, err error) {
	if len(d.sockets) > 0 || c.HoldsEarly() || ds.searches.Suspect(registry.TCP, int(s.fd), s.to) != nil {
		return false, nil
	}
	return ds.relays.SendEarly(c, int(s.fd))
}

// lookUp looks the name of an endpoint up beside the loop.
func (ds *dialler) lookUp(c *relay.Conn, step tcp.Step) {
	t := c.Token(relay.BackendSide)
	ds.searches.LookUp(registry.TCP, step.Of, admit.LookUpTimeout, func(addrs []netip.AddrPort, err error) {
		c := ds.conns.At(t.Index, t.Generation)
		if c == nil {
			return
		}
		d := ds.dialOf(c)
		switch {
		case d == nil: // another endpoint was faster
			return
		case err != nil:
			d.race.Failed(ds.turn.Now, step.ID, err)
		default:
			d.race.Resolved(ds.turn.Now, step.ID, addrs)
		}
		ds.advance(c)
	})
}

// stop closes the socket that the race has given up.
func (d *dial) stop(id uint32) {
	d.sockets = slices.DeleteFunc(d.sockets, func(s connecting) bool {
		if s.id != id {
			return false
		}
		socket.Close(int(s.fd))
		return true
	})
}

// progress looks which of the sockets of c the kernel has decided.
func (ds *dialler) progress(c *relay.Conn, mask uint32) {
	d := ds.dialOf(c)
	for i, s := range d.sockets {
		connected, err := mask == unix.EPOLLOUT, error(nil) // so it is nearly always
		if !connected || len(d.sockets) > 1 {
			connected, err = socket.Outcome(int(s.fd))
		}
		if connected {
			if err = ds.searches.Suspect(registry.TCP, int(s.fd), s.to); err == nil {
				ds.settle(c, d, s, mask)
				return
			}
		}
		if err != nil {
			socket.ResetOnClose(int(s.fd)) // had it reached itself, a close would keep the port from its endpoint for a minute (TIME_WAIT)
			socket.Close(int(s.fd))
			d.sockets = slices.Delete(d.sockets, i, i+1)
			d.race.Failed(ds.turn.Now, s.id, err)
			ds.advance(c)
			return // of the others the kernel tells by themselves
		}
	}
}

// settle ends the search with the socket that is connected, and closes the others.
func (ds *dialler) settle(c *relay.Conn, d *dial, won connecting, mask uint32) {
	endpoint := d.race.Connected(ds.turn.Now, won.id)
	for _, s := range d.sockets {
		if s.id != won.id {
			socket.Close(int(s.fd))
		}
	}
	c.Account.Given(endpoint, d.race.Failures())
	if ds.engine.Cfg.NoteLocal {
		c.Account.GoesFrom(socket.LocalName(int(won.fd)))
	}
	ds.recycle(c, d)
	ds.relays.Begin(c, won.fd, mask)
}

// giveUp turns c away, unless it is the service that has nothing to offer, and the port is another's
// by now.
func (ds *dialler) giveUp(c *relay.Conn, d *dial) {
	if owner := c.Owner.Load(); len(d.race.Failures()) > 0 || owner == c.Account.Claim {
		ds.turnAway(c, d.race.WhyNone())
	} else if ds.recycle(c, d); c.Account.Follow(owner) {
		ds.reach(c)
	} else { // and it is counted no more
		ds.relays.Cut(c)
		ds.relays.Free(c)
	}
}

// turnAway ends c, for which there is no endpoint, or no time to find one.
func (ds *dialler) turnAway(c *relay.Conn, why traffic.Reason) {
	reason := c.Because(why)
	ds.relays.Cut(c)
	c.Account.TurnAway(reason, ds.abandon(c))
	ds.relays.Free(c)
}

// abandon ends the search of c, and returns the endpoints that did not answer.
func (ds *dialler) abandon(c *relay.Conn) []tcp.Failure {
	d := ds.dialOf(c)
	d.race.Abandon()
	for _, s := range d.sockets {
		socket.Close(int(s.fd))
	}
	failed := d.race.Failures()
	ds.recycle(c, d)
	return failed
}

// recycle keeps the dial of c, which is over, for another client.
func (ds *dialler) recycle(c *relay.Conn, d *dial) {
	d.race.Reset()
	d.sockets, d.deferred = d.sockets[:0], false
	delete(ds.dials, c.Index())
	ds.spare.GiveBack(d)
}
