package datagrams

import (
	"errors"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/udp"
)

// How the sessions of a loop at rest pass to another process. What waits in the sockets, of ports and of sessions, stays in them.

// Lend passes on the sessions in a few places that have their endpoint, and returns the next place; negative: there is none. number is
// the loop's.
func (u *Sessions) Lend(from int, number int, lending uint16, send func([]takeover.Item) error) (next int, err error) {
	var items []takeover.Item
	sessions, next := u.all.Some(from, reactor.PlacesAStep)
	for slot := range sessions {
		f := *slot
		if f.fd == socket.None || f.isSuperseded() {
			continue
		}
		message := f.Export(u.Turn.Now)
		if !message.Visit.IsOn { // its endpoint has gone, and it is about to move
			continue
		}
		message.Lent = f.lentAs(number)
		items = append(items, handover.Encode(&message, int(f.fd)))
		f.lending = lending
	}
	if len(items) == 0 {
		return next, nil
	}
	return next, send(items)
}

// isSuperseded reports whether the client has begun another session. f waits for replies, and does not pass to a successor.
func (f *session) isSuperseded() bool { return f.port.clients[f.Key] != f }

// lentAs is what a successor knows f by, if it is lent: not 0.
func (f *session) lentAs(number int) uint64 { return uint64(number)<<32 + uint64(f.index) + 1 }

// Export yields the ports and sessions, and reports whether to go on. Of sessions that were lent in this lending, it yields the rest; 0 is none.
func (u *Sessions) Export(number int, lending uint16, yield func(takeover.Item, error) bool) bool {
	u.out.Send()
	for p := range u.ports.All {
		(*p).countLost()
		if !yield(handover.Encode(&handover.UDPPort{Number: (*p).Number, Lost: (*p).Lost(), At: (*p).Owner.Load().ID.Addr}), nil) {
			return false
		}
	}
	for slot := range u.all.All {
		f := *slot
		if f.isSuperseded() {
			continue
		}
		u.countLost(f)
		message := f.Export(u.Turn.Now)
		var item takeover.Item
		switch {
		case message.Visit.IsOn && lending != 0 && f.lending == lending:
			rest := f.Rest(f.lentAs(number))
			item = handover.Encode(&rest)
		case message.Visit.IsOn:
			item = handover.Encode(&message, int(f.fd))
		default:
			item = handover.Encode(&message)
		}
		if !yield(item, nil) {
			return false
		}
	}
	return true
}

// Adopt gives a session to its port, which may be another loop's at rest. If the session cannot go on there, it ends in the next turn;
// one of a port without an owner ends in u. The descriptor is the session's unless Adopt fails.
func (u *Sessions) Adopt(message *handover.UDP, at engine.Place, descriptors []int) error {
	p, ok := at.Socket.(*port)
	if !ok {
		p = u.closedPort(message.Port, at)
	}
	receiver := u
	u = p.sessions
	if old := p.clients[admit.SessionKey{Client: message.Client, Local: message.Local}]; old != nil {
		if old.lent == 0 {
			return errors.New("two sessions of one client")
		}
		delete(receiver.borrowed, old.lent) // it has moved in the predecessor, or ended and begun anew
		u.forget(old)
	}
	if !u.Engine.Budget.Take(1) {
		return admit.ErrNoDescriptors
	}
	f := &session{port: p, fd: socket.None}
	u.place(f)
	var visit *udp.Visit
	if message.Visit.IsOn {
		visit, f.fd = &f.visit, int32(descriptors[0])
		visit.To = socket.PeerName(descriptors[0])
		if lost, ok := sockopt.Lost(descriptors[0]); ok {
			visit.AdoptLost(lost)
		}
	}
	p.Adopt(&f.Session, f, message, at, visit)
	if visit != nil && u.Engine.Cfg.NoteLocal {
		f.GoesFrom(socket.LocalName(int(f.fd)))
	}
	p.clients[f.Key] = f
	if visit != nil {
		if err := u.Poller.Watch(int(f.fd), f.token(), unix.EPOLLIN); err != nil {
			f.fd = socket.None // it is the caller's
			u.forget(f)
			return err
		}
	}
	if message.Lent != 0 {
		receiver.borrow(f, message.Lent)
	}
	if why, ends := p.Ends(&f.Session, p.closed); ends {
		u.Requests.Do(func() { u.end(f, why) })
	} else if visit == nil {
		u.Requests.Do(func() { u.redirect(f) })
	}
	return nil
}

// borrow notes that a predecessor goes on with f, which it knows by a number.
func (u *Sessions) borrow(f *session, lent uint64) {
	if u.borrowed == nil {
		u.borrowed = make(map[uint64]*session)
	}
	f.lent, u.borrowed[lent] = lent, f
}

// AdoptRest carries on with a session that was borrowed.
func (u *Sessions) AdoptRest(rest *handover.UDPRest) error {
	f := u.borrowed[rest.Lent]
	if f == nil {
		return errors.New("the rest of a session that was not lent")
	}
	delete(u.borrowed, rest.Lent)
	f.lent = 0
	f.AdoptRest(rest)
	return nil
}

// GiveBack closes here what has ended in the predecessor.
func (u *Sessions) GiveBack() {
	for _, f := range u.borrowed {
		f.port.sessions.forget(f)
	}
	u.borrowed = nil
}

// closedPort makes the port of a session that has none: to end with it.
func (u *Sessions) closedPort(number uint16, at engine.Place) *port {
	p := &port{sessions: u, Watched: reactor.Watched{FD: socket.None}, closed: true, clients: make(map[admit.SessionKey]*session)}
	p.Init(u.Engine, number, at.Owner)
	return p
}

// Release closes all sessions here, and forgets them.
func (u *Sessions) Release() {
	for f := range u.all.All {
		u.forget(*f)
	}
	u.borrowed = nil
}

// forget closes the socket of f here without an end.
func (u *Sessions) forget(f *session) {
	if f.fd != socket.None {
		u.Poller.Unwatch(int(f.fd))
		socket.Close(int(f.fd))
		f.fd = socket.None
	}
	u.displace(f)
	f.Forget()
}
