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
	"kubeproxy/proxy/udp"
)

// How the sessions of a loop at rest pass to another process. What waits in the sockets, of ports and of sessions, stays in them.

// Export yields the ports and sessions, and reports whether to go on.
func (u *Sessions) Export(yield func(takeover.Item, error) bool) bool {
	u.out.Send()
	for p := range u.ports.All {
		if !yield(handover.Encode(&handover.UDPPort{Number: (*p).Number, Lost: (*p).Lost()}), nil) {
			return false
		}
	}
	for f := range u.all.All {
		record := (*f).Record(u.Turn.Now)
		var descriptors []int
		if record.Visit.IsOn {
			descriptors = []int{int((*f).fd)}
		}
		if !yield(handover.Encode(&record, descriptors...), nil) {
			return false
		}
	}
	return true
}

// Adopt gives a session to its port, which may be another loop's at rest. If the session cannot go on there, it ends in the next turn;
// one of a port without an owner ends in u. The descriptor is the session's unless Adopt fails.
func (u *Sessions) Adopt(record *handover.UDP, at engine.Place, descriptors []int) error {
	p, ok := at.Socket.(*port)
	if !ok {
		p = u.closedPort(record.Port, at)
	}
	u = p.sessions
	if p.clients[admit.SessionKey{Client: record.Client, Local: record.Local}] != nil {
		return errors.New("two sessions of one client")
	}
	if !u.Engine.Budget.Take(1) {
		return admit.ErrNoDescriptors
	}
	f := &session{port: p, fd: socket.None}
	u.place(f)
	var visit *udp.Visit
	if record.Visit.IsOn {
		visit, f.fd = &f.visit, int32(descriptors[0])
	}
	p.Adopt(&f.Session, f, record, at, visit)
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
	if why, ends := p.Ends(&f.Session, p.closed); ends {
		u.Requests.Do(func() { u.end(f, why) })
	} else if visit == nil {
		u.Requests.Do(func() { u.redirect(f) })
	}
	return nil
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
}

// forget closes the socket of f here without an end.
func (u *Sessions) forget(f *session) {
	if f.fd != socket.None {
		u.Poller.Unwatch(int(f.fd))
		socket.Close(int(f.fd))
		f.fd = socket.None
	}
	delete(f.port.clients, f.Key)
	u.all.Remove(f.index)
	f.Forget()
}
