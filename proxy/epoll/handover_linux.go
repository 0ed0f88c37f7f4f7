package epoll

import (
	"errors"
	"iter"
	"slices"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/relay"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/tcp"
)

// How the connections and sessions of loops at rest pass to another process.
//
// An open socket is one thing with several descriptors, in one process or in two. What the kernel holds for it, received or yet to be
// sent, stays with it. So a message needs only what the loop holds: bytes that a side has no room for, and how far the end has come.
// Closing one descriptor sends nothing while there is another. But epoll goes on reporting a socket for as long as it is open
// anywhere, so each is taken out of the poller first.
//
// To register their sockets takes most of a take-over. So connections and sessions are lent before: the successor registers them while the
// predecessor still carries them. What the kernel tells of them meanwhile waits in the poller that is at rest, and it asks each socket
// once more before it tells. A connection that is lent and ends must end for its peers though the successor has its sockets: package relay sees to that.

// IsLive returns true.
func (e *Engine) IsLive() bool { return true }

// Lend passes on the connections, or sessions, in a few places of a loop. The number of the loop is above the bits of the place.
func (e *Engine) Lend(from int64, sessions bool, send func([]takeover.Item) error) (next int64, err error) {
	if from == 0 {
		e.lendings = max(1, e.lendings+1)
	}
	next = e.step(from, sessions, func(l *loop, place int) (next int) {
		next, err = l.lend(place, e.lendings, send)
		return next
	}, func(l *loop, place int) (next int) {
		next, err = l.sessions.Lend(place, l.number, e.lendings, send)
		return next
	})
	return next, err
}

// lend passes on the connections in a few places, and returns the next place; negative: there is none.
func (l *loop) lend(from int, lending uint16, send func([]takeover.Item) error) (next int, err error) {
	var items []takeover.Item
	conns, next := l.conns.Some(from, reactor.PlacesAStep)
	for c := range conns {
		if !c.IsRelayed() {
			continue
		}
		message := c.Account.Export()
		message.Lent = l.lentAs(c)
		items = append(items, handover.Encode(&message, c.Descriptors()...))
		c.Lend(lending)
	}
	if len(items) == 0 {
		return next, nil
	}
	return next, send(items)
}

// lentAs is what a successor knows c by, if it is lent: not 0.
func (l *loop) lentAs(c *relay.Conn) uint64 { return uint64(l.number)<<32 + uint64(c.Index()) + 1 }

// Export yields the connections, UDP ports and sessions of all loops.
func (e *Engine) Export(afterLending bool) iter.Seq2[takeover.Item, error] {
	lending := e.lendings
	if !afterLending {
		lending = 0
	}
	return func(yield func(takeover.Item, error) bool) {
		for _, l := range e.running() {
			if !l.export(lending, yield) || !l.sessions.Export(l.number, lending, yield) {
				return
			}
		}
	}
}

// export yields the connections of a loop, and reports whether to go on. Those that still look for an endpoint are without one: the
// search begins again, and what the client has said already is held for it.
func (l *loop) export(lending uint16, yield func(takeover.Item, error) bool) bool {
	for c := range l.conns.All {
		progress, err := l.relays.Progress(c)
		var item takeover.Item
		if c.IsLent(lending) {
			item = handover.Encode(&handover.Rest{Lent: l.lentAs(c), Progress: progress})
		} else {
			message := c.Account.Export()
			message.Progress = progress
			item = handover.Encode(&message, c.Descriptors()...)
		}
		if !yield(item, err) {
			return false
		}
	}
	return true
}

// AdoptTCP gives a connection to the loop that has least to carry.
func (e *Engine) AdoptTCP(message *handover.TCP, at engine.Place, descriptors []int) error {
	loops, err := e.started()
	if err != nil {
		return err
	}
	if !e.Budget.Take(2) {
		return admit.ErrNoDescriptors
	}
	l := slices.MinFunc(loops[:e.loopCount], func(a, b *loop) int { return int(a.conns.Assigned.Load() - b.conns.Assigned.Load()) })
	l.conns.Assigned.Add(1)
	c := l.conns.Begin(descriptors[0], at.Owner, tcp.Adopt(&e.Base, message, at))
	t := c.Token(relay.ClientSide)
	if at.Endpoint == nil {
		l.relays.Progressed(c, &message.Progress)
		l.requests.Do(func() {
			if c := l.conns.At(t.Index, t.Generation); c != nil {
				l.dialler.start(c)
			}
		})
		return nil
	}
	if e.Cfg.NoteLocal {
		c.Account.GoesFrom(socket.LocalName(descriptors[1]))
	}
	lent := message.Lent != 0
	if err = l.relays.Adopt(c, descriptors[1], &message.Progress, lent); err == nil && lent {
		if e.borrowed == nil {
			e.borrowed = make(map[uint64]borrowed)
		}
		e.borrowed[message.Lent] = borrowed{l, t}
	}
	return err
}

// A borrowed connection goes on in the predecessor.
type borrowed struct {
	loop  *loop
	token reactor.Token
}

func (b borrowed) conn() *relay.Conn { return b.loop.conns.At(b.token.Index, b.token.Generation) }

// AdoptRest carries on with a connection that was borrowed.
func (e *Engine) AdoptRest(rest *handover.Rest) error {
	b, ok := e.borrowed[rest.Lent]
	if !ok {
		return errors.New("the rest of a connection that was not lent")
	}
	delete(e.borrowed, rest.Lent)
	b.loop.relays.AdoptRest(b.conn(), &rest.Progress)
	return nil
}

// AdoptUDPRest carries on with a session that was borrowed.
func (e *Engine) AdoptUDPRest(rest *handover.UDPRest) error {
	loops, err := e.started()
	if err != nil {
		return err
	}
	return loops[0].sessions.AdoptRest(rest)
}

// GiveBack closes here what has ended in the predecessor.
func (e *Engine) GiveBack() {
	for _, b := range e.borrowed {
		b.loop.forget(b.conn())
	}
	e.borrowed = nil
	for _, l := range e.running() {
		l.sessions.GiveBack()
	}
}

// AdoptUDP gives a session to its port.
func (e *Engine) AdoptUDP(message *handover.UDP, at engine.Place, descriptors []int) error {
	loops, err := e.started()
	if err != nil {
		return err
	}
	return loops[0].sessions.Adopt(message, at, descriptors)
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
	e.borrowed = nil
}

// forget closes c here without an end.
func (l *loop) forget(c *relay.Conn) {
	if c.Phase() == relay.Dialling {
		l.dialler.abandon(c)
	}
	l.relays.Forget(c)
}
