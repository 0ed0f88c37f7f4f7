package relay

import (
	"fmt"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/tcp"
)

// What of a connection passes to another process: its descriptors, and how far it has come.

// Descriptors are those of the client and, once it has one, of the backend.
func (c *Conn) Descriptors() []int {
	if !c.backend.open {
		return []int{int(c.client.fd)}
	}
	return []int{int(c.client.fd), int(c.backend.fd)}
}

// Lend notes that c is lent to a successor, which has its descriptors from now on. A lending has a number, not 0.
func (c *Conn) Lend(lending uint16) {
	c.lending, c.client.shared, c.backend.shared = lending, true, true
}

// IsLent reports whether c was last lent in a lending. In number 0 nothing is.
func (c *Conn) IsLent(lending uint16) bool { return lending != 0 && c.lending == lending }

// Progress returns how far c has come.
func (r *Relays) Progress(c *Conn) (p handover.Progress, err error) {
	p = handover.Progress{
		Sent: c.Account.Sent, Received: c.Account.Received, Header: c.backend.header, Stays: c.Account.Stays(), End: c.end.Export(r.Turn.Now),
	}
	p.End.Flushing = c.phase == flushing
	if p.ToBackend, err = r.unsent(&c.backend); err == nil {
		p.ToClient, err = r.unsent(&c.client)
	}
	return p, err
}

// unsent returns all that is still to be written to a side. What is in a pipe is moved into memory.
func (r *Relays) unsent(s *side) ([]byte, error) {
	t := s.held
	if t == nil {
		return nil, nil
	}
	if t.pipe != nil {
		if err := r.drain(t); err != nil {
			return nil, fmt.Errorf("what a pipe holds cannot be read: %w", err)
		}
	}
	return t.rest, nil
}

// Progressed sets how far a connection had come in a predecessor. It may be without a backend yet.
func (r *Relays) Progressed(c *Conn, p *handover.Progress) {
	c.end = tcp.AdoptTeardown(&p.End, r.Turn.Now)
	c.Account.Sent, c.Account.Received, c.Account.Stayed, c.backend.header = p.Sent, p.Received, p.Stays, p.Header
	if len(p.ToBackend) > 0 {
		c.backend.held = r.tail(p.ToBackend)
	}
	if len(p.ToClient) > 0 {
		c.client.held = r.tail(p.ToClient)
	}
	if c.backend.open && c.end.HasFinished(tcp.BackendSide) {
		c.Account.EndpointEnded()
	}
	switch {
	case !c.backend.open: // an endpoint is looked for
	case p.End.Flushing:
		r.Conns.Enter(c, flushing)
	case c.end.HasBegun():
		r.Conns.Enter(c, finishing)
	default:
		r.Conns.Enter(c, Young)
	}
}

// Adopt carries on with a connection of a predecessor at the next turn, with a backend whose socket is given. One that is lent follows the
// lifetimes of this process only from AdoptRest on: what checks have found comes before that. If Adopt fails, c is forgotten, and its sockets
// are the caller's.
func (r *Relays) Adopt(c *Conn, backend int, p *handover.Progress, lent bool) error {
	err := r.enroll(c, backend, p)
	switch {
	case err == nil && !lent:
		r.watchLifetimes(c)
	case err != nil:
		r.Poller.Unwatch(int(c.client.fd))
		c.client.open, c.backend.open = false, false
		r.Forget(c)
	}
	return err
}

// enroll carries on with a connection that was carried elsewhere. The kernel tells of all that there is to be read, or to be noticed, once
// more.
func (r *Relays) enroll(c *Conn, backend int, p *handover.Progress) error {
	c.backend.fd, c.backend.open, c.headed = int32(backend), true, true
	r.Progressed(c, p)
	for _, way := range [...]struct {
		s    *side
		kind reactor.Kind
	}{{&c.client, ClientSide}, {&c.backend, BackendSide}} {
		mask := uint32(News)
		if way.s.wantsOut = way.s.stalled(); way.s.wantsOut {
			mask |= unix.EPOLLOUT
		}
		if err := r.Poller.Watch(int(way.s.fd), c.Token(way.kind), mask); err != nil {
			return err
		}
	}
	return nil
}

// AdoptRest carries on with a connection that was adopted while its predecessor still carried it, from where that has come to since.
func (r *Relays) AdoptRest(c *Conn, p *handover.Progress) {
	r.Progressed(c, p)
	for _, s := range [...]*side{&c.client, &c.backend} {
		if s.stalled() {
			r.wantOut(c, s)
		}
	}
	r.watchLifetimes(c)
}

// Forget closes c here without an end: another process carries it.
func (r *Relays) Forget(c *Conn) {
	for _, s := range [...]*side{&c.client, &c.backend} {
		if s.open {
			r.Poller.Unwatch(int(s.fd))
			socket.Close(int(s.fd))
			s.open = false
		}
		r.drop(s)
	}
	c.Account.Forget()
	r.Free(c)
}
