package epoll

import (
	"errors"
	"iter"
	"slices"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/tcp"
)

// How the connections and sessions of loops at rest pass to another process.
//
// An open socket is one thing with several descriptors, in one process or in two. What the kernel holds for it, received or yet to be
// sent, stays with it. So a record needs only what the loop holds: bytes that a side has no room for, and how far the end has come.
// Closing one descriptor sends nothing while there is another. But epoll goes on reporting a socket for as long as it is open
// anywhere, so each is taken out of the poller first.

// IsLive returns true.
func (e *Engine) IsLive() bool { return true }

// Export yields the connections, UDP ports and sessions of all loops.
func (e *Engine) Export() iter.Seq2[takeover.Item, error] {
	return func(yield func(takeover.Item, error) bool) {
		for _, l := range e.running() {
			if !l.relays.export(yield) || !l.sessions.Export(yield) {
				return
			}
		}
	}
}

// export yields the connections of a loop, and reports whether to go on. Those that still look for an endpoint are without one: the
// search begins again, and what the client has said already is held for it.
func (r *relays) export(yield func(takeover.Item, error) bool) bool {
	for c := range r.conns.All {
		record := c.record.Record()
		record.Sent, record.Received, record.Header = c.backend.sent, c.client.sent, c.backend.header
		record.End = c.end.Record(r.turn.Now)
		record.End.Flushing = c.phase == flushing
		var err error
		if record.ToBackend, err = r.unsent(&c.backend); err == nil {
			record.ToClient, err = r.unsent(&c.client)
		}
		descriptors := [2]int{int(c.client.fd), int(c.backend.fd)}
		n := 1
		if c.backend.open {
			n = 2
		}
		if !yield(handover.Encode(&record, descriptors[:n]...), err) {
			return false
		}
	}
	return true
}

// unsent returns all that is still to be written to a side. What is in a pipe is moved into memory, behind what is there already.
func (r *relays) unsent(s *side) ([]byte, error) {
	if p := s.bulk; p != nil {
		var all []byte
		if s.held != nil {
			all = s.held.rest
		}
		for all = slices.Clone(all); p.N > 0; {
			all = slices.Grow(all, p.N)
			n, errno := socket.Read(p.R, all[len(all):len(all)+p.N])
			if errno != 0 {
				break
			}
			all = all[:len(all)+n]
			p.N -= n
		}
		if s.held != nil {
			r.tails.GiveBack(s.held)
		}
		s.held = r.tail(all)
		if p.N > 0 {
			return nil, errors.New("what a pipe holds cannot be read")
		}
		r.pipes.GiveBack(p)
		s.bulk = nil
	}
	if s.held == nil {
		return nil, nil
	}
	return s.held.rest, nil
}

// AdoptTCP gives a connection to the loop that has least to carry.
func (e *Engine) AdoptTCP(record *handover.TCP, at engine.Place, descriptors []int) error {
	loops, err := e.started()
	if err != nil {
		return err
	}
	if !e.Budget.Take(2) {
		return admit.ErrNoDescriptors
	}
	l := slices.MinFunc(loops, func(a, b *loop) int { return int(a.conns.load.Load() - b.conns.load.Load()) })
	l.conns.load.Add(1)
	c := l.conns.begin(descriptors[0], at.Owner, tcp.Adopt(&e.Base, record, at))
	c.end = tcp.AdoptTeardown(&record.End, l.turn.Now)
	c.backend.sent, c.client.sent = record.Sent, record.Received
	if len(record.ToBackend) > 0 {
		c.backend.held = l.relays.tail(record.ToBackend)
	}
	if at.Endpoint == nil {
		t := c.token(clientSide)
		l.requests.Do(func() {
			if c := l.conns.At(t.Index, t.Generation); c != nil {
				l.dialler.start(c)
			}
		})
		return nil
	}
	if len(record.ToClient) > 0 {
		c.client.held = l.relays.tail(record.ToClient)
	}
	c.backend.fd, c.backend.open = int32(descriptors[1]), true
	c.headed, c.backend.header = true, record.Header
	if e.Cfg.NoteLocal {
		c.record.GoesFrom(socket.LocalName(descriptors[1]))
	}
	if err = l.relays.adopt(c, record.End.Flushing); err != nil {
		c.client.open, c.backend.open = false, false // they are the caller's
		l.forget(c)
	}
	return err
}

// adopt carries on with a connection at the next turn. The kernel tells of all that there is to be read, or to be noticed, once more.
func (r *relays) adopt(c *conn, isFlushing bool) error {
	for _, way := range [...]struct {
		s    *side
		kind reactor.Kind
	}{{&c.client, clientSide}, {&c.backend, backendSide}} {
		mask := uint32(news)
		if way.s.wantsOut = way.s.stalled(); way.s.wantsOut {
			mask |= unix.EPOLLOUT
		}
		if err := r.poller.Watch(int(way.s.fd), c.token(way.kind), mask); err != nil {
			r.poller.Unwatch(int(c.client.fd))
			return err
		}
	}
	switch {
	case isFlushing:
		r.conns.enter(c, flushing)
	case c.end.HasBegun():
		r.conns.enter(c, finishing)
	default:
		r.conns.enter(c, young)
	}
	r.watchLifetimes(c)
	return nil
}

// AdoptUDP gives a session to its port.
func (e *Engine) AdoptUDP(record *handover.UDP, at engine.Place, descriptors []int) error {
	loops, err := e.started()
	if err != nil {
		return err
	}
	return loops[0].sessions.Adopt(record, at, descriptors)
}

// started returns the loops, which run from then on.
func (e *Engine) started() ([]*loop, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.startLocked()
	return e.loops, err
}

// Release closes all connections and sessions here, and forgets them.
func (e *Engine) Release() {
	for _, l := range e.running() {
		for c := range l.conns.All {
			l.forget(c)
		}
		l.sessions.Release()
	}
}

// forget closes c here without an end.
func (l *loop) forget(c *conn) {
	if c.dial != nil {
		l.dialler.abandon(c)
	}
	for _, s := range [...]*side{&c.client, &c.backend} {
		if s.open {
			l.poller.Unwatch(int(s.fd))
			socket.Close(int(s.fd))
			s.open = false
		}
		l.relays.drop(s)
	}
	c.record.Forget()
	l.relays.free(c)
}
