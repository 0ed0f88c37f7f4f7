package epoll

import (
	"context"
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
	ongoing  map[int32]*search // by the index of the connection
	spare    reactor.FreeList[search]
	peeked   [proxyproto.MaxHeader]byte // see parseHeader
}

// A search is that for the endpoint of one client.
type search struct {
	race     tcp.Race
	sockets  []connecting
	deferred bool        // the loop goes on with it in a later turn
	unheard  func() bool // ends the wait for news of the endpoints; nil: it waits for none
}

// A connecting socket is one whose connection is not established yet.
type connecting struct {
	id uint32 // which the race knows it by
	fd int32
	to netip.AddrPort
}

// reach begins to look for an endpoint for c.
func (ds *dialler) reach(c *relay.Conn) {
	s := ds.spare.Take()
	s.race.BeginFor(&c.Account, c.Owner, &ds.races, ds.turn.Now)
	ds.ongoing[c.Index()] = s
	ds.conns.Enter(c, relay.Dialling)
	ds.advance(c)
}

// searchOf returns the search of c; nil: it does not look for an endpoint, or has ended.
func (ds *dialler) searchOf(c *relay.Conn) *search {
	if c.Phase() != relay.Dialling {
		return nil
	}
	return ds.ongoing[c.Index()]
}

// advance takes the steps that the race of c asks for, until it waits or is over. A race that waits for a later turn takes none before that.
func (ds *dialler) advance(c *relay.Conn) {
	for s := ds.searchOf(c); !s.deferred; {
		switch step := s.race.Next(ds.turn.Now); step.Do {
		case tcp.Dial:
			if ds.connect(c, s, connecting{id: step.ID, to: step.To}) {
				return
			}
		case tcp.LookUp:
			ds.lookUp(c, step)
		case tcp.Stop:
			s.stop(step.ID)
		case tcp.Postpone:
			s.deferred = true
			ds.searches.Postpone(c.Token(relay.BackendSide))
		case tcp.GiveUp:
			ds.giveUp(c, s)
			return
		case tcp.Await:
			ds.conns.LookAt(c, step.At)
			ds.awaitNews(c, s, step.News)
			return
		}
	}
}

// awaitNews has the search of c go on when there is news of the endpoints; nil: it waits for none.
func (ds *dialler) awaitNews(c *relay.Conn, s *search, news context.Context) {
	s.forgetNews()
	if news == nil {
		return
	}
	t := c.Token(relay.BackendSide)
	s.unheard = context.AfterFunc(news, func() {
		ds.requests.Do(func() {
			if c := ds.conns.At(t.Index, t.Generation); c != nil && ds.searchOf(c) == s {
				ds.advance(c)
			}
		})
	})
}

func (s *search) forgetNews() {
	if s.unheard != nil {
		s.unheard()
		s.unheard = nil
	}
}

// resume goes on with the search of c, which was left to a later turn.
func (ds *dialler) resume(c *relay.Conn) {
	if s := ds.searchOf(c); s != nil && s.deferred {
		s.deferred = false
		ds.advance(c)
	}
}

// connect begins to connect sock. If the endpoint has answered by then, which it reports, the search is over.
func (ds *dialler) connect(c *relay.Conn, s *search, sock connecting) (answered bool) {
	fd, errno := socket.Connect(sock.to)
	if errno != 0 {
		s.race.Failed(ds.turn.Now, sock.id, errno)
		return false
	}
	sock.fd = int32(fd)
	answered, err := ds.sendEarly(c, s, sock)
	if answered {
		ds.settle(c, s, sock, 0)
		return true
	}
	if err == nil {
		err = ds.poller.Watch(fd, c.Token(relay.BackendSide), relay.News|unix.EPOLLOUT)
	}
	if err != nil {
		socket.Close(fd)
		s.race.Failed(ds.turn.Now, sock.id, err)
		return false
	}
	s.sockets = append(s.sockets, sock)
	return false
}

// sendEarly sends what the client has said already to the only endpoint that is being connected to, and reports
// whether the endpoint has answered. A near endpoint takes it: its connection is established by then, without waiting for a turn of the loop.
func (ds *dialler) sendEarly(c *relay.Conn, s *search, sock connecting) (answered bool, err error) {
	if len(s.sockets) > 0 || c.HoldsEarly() || ds.searches.Suspect(registry.TCP, int(sock.fd), sock.to) != nil {
		return false, nil
	}
	return ds.relays.SendEarly(c, int(sock.fd))
}

// lookUp looks the name of an endpoint up beside the loop.
func (ds *dialler) lookUp(c *relay.Conn, step tcp.Step) {
	t := c.Token(relay.BackendSide)
	ds.searches.LookUp(registry.TCP, step.Of, admit.LookUpTimeout, func(addrs []netip.AddrPort, err error) {
		c := ds.conns.At(t.Index, t.Generation)
		if c == nil {
			return
		}
		s := ds.searchOf(c)
		switch {
		case s == nil: // another endpoint was faster
			return
		case err != nil:
			s.race.Failed(ds.turn.Now, step.ID, err)
		default:
			s.race.Resolved(ds.turn.Now, step.ID, addrs)
		}
		ds.advance(c)
	})
}

// stop closes the socket that the race has given up.
func (s *search) stop(id uint32) {
	s.sockets = slices.DeleteFunc(s.sockets, func(sock connecting) bool {
		if sock.id != id {
			return false
		}
		socket.Close(int(sock.fd))
		return true
	})
}

// progress looks which of the sockets of c the kernel has decided. It asks each of them, whichever the event is about: the kernel tells of each
// once, and may have told of one that has been closed since.
func (ds *dialler) progress(c *relay.Conn, mask uint32) {
	s, failed := ds.searchOf(c), false
	for i := 0; i < len(s.sockets); {
		sock := s.sockets[i]
		connected, err := socket.Outcome(int(sock.fd))
		if connected {
			if err = ds.searches.Suspect(registry.TCP, int(sock.fd), sock.to); err == nil {
				ds.settle(c, s, sock, mask)
				return
			}
		}
		if err == nil {
			i++
			continue
		}
		socket.ResetOnClose(int(sock.fd)) // had it reached itself, a close would keep the port from its endpoint for a minute (TIME_WAIT)
		socket.Close(int(sock.fd))
		s.sockets = slices.Delete(s.sockets, i, i+1)
		s.race.Failed(ds.turn.Now, sock.id, err)
		failed = true
	}
	if failed {
		ds.advance(c)
	}
}

// settle ends the search with the socket that is connected, and closes the others.
func (ds *dialler) settle(c *relay.Conn, s *search, won connecting, mask uint32) {
	endpoint := s.race.Connected(ds.turn.Now, won.id)
	for _, sock := range s.sockets {
		if sock.id != won.id {
			socket.Close(int(sock.fd))
		}
	}
	if ds.engine.Cfg.NoteLocal {
		c.Account.GoesFrom(socket.LocalName(int(won.fd)))
	}
	c.Account.Given(endpoint, s.race.Failures())
	ds.recycle(c, s)
	ds.relays.Begin(c, won.fd, mask)
}

// giveUp turns c away, unless the port has another owner by now that c is to follow.
func (ds *dialler) giveUp(c *relay.Conn, s *search) {
	owner := s.race.NewOwner()
	switch {
	case owner == nil:
		ds.turnAway(c, s.race.WhyNone())
	case s.race.Follow(owner, ds.turn.Now):
		ds.advance(c)
	default: // it is counted no more
		ds.recycle(c, s)
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
	s := ds.searchOf(c)
	s.race.Abandon()
	for _, sock := range s.sockets {
		socket.Close(int(sock.fd))
	}
	failed := s.race.Failures()
	ds.recycle(c, s)
	return failed
}

// recycle keeps the search of c, which is over, for another client.
func (ds *dialler) recycle(c *relay.Conn, s *search) {
	s.race.Reset()
	s.forgetNews()
	s.sockets, s.deferred = s.sockets[:0], false
	delete(ds.ongoing, c.Index())
	ds.spare.GiveBack(s)
}
