package datagrams

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// Open opens the socket of a port. As with TCP, package net opens it. Any goroutine may call it.
func (u *Sessions) Open(id registry.ListenerID, owner *atomic.Pointer[engine.Claim]) (engine.Socket, error) {
	fd, err := socket.ListenUDP(u.Engine, id)
	if err != nil {
		return nil, err
	}
	p := &port{
		sessions: u,
		Watched:  reactor.Watched{FD: fd},
		clients:  make(map[admit.SessionKey]*session),
		batch:    socket.DatagramBatch,
		dual:     socket.Family(fd) == unix.AF_INET6,
	}
	p.Init(u.Engine, id.Number, owner)
	if lost, ok := sockopt.Lost(fd); ok {
		p.AdoptLost(lost) // of a predecessor's socket
	}
	p.ready, _ = u.Requests.Begin(func() {
		slot, index, generation := u.ports.Add()
		*slot = p
		p.Token = reactor.Token{Kind: u.Asking, Index: index, Generation: generation}
		p.err = u.Poller.Watch(fd, p.Token, unix.EPOLLIN)
	})
	return p, nil
}

// Ready waits until the loop watches the socket.
func (p *port) Ready() error {
	<-p.ready
	p.ready = reactor.Done // there are tens of thousands of ports
	if p.err != nil {
		p.Close()
	}
	return p.err
}

// Descriptor returns the socket of the port.
func (p *port) Descriptor() (int, error) { return p.FD, nil }

// OwnerChanged ends the sessions that the new owner of the port does not keep.
func (p *port) OwnerChanged() {
	p.sessions.Requests.InSteps(p.endSessions)
}

// Close ends the sessions in steps: there may be tens of thousands. Meanwhile nothing is read from the port.
func (p *port) Close() {
	u := p.sessions
	u.Requests.Call(func() {
		p.closed = true
		p.Forget()
		u.Poller.Unwatch(p.FD)
	})
	u.Requests.InSteps(p.endSessions)
	u.Requests.Call(p.free)
}

// Drain lets no new client in. The last session of the port frees it: see finish.
func (p *port) Drain() {
	u := p.sessions
	u.Requests.Call(func() {
		p.Port.Drain()
		u.sweepAt = u.Turn.Now
		p.freeIfDrained()
	})
}

func (p *port) freeIfDrained() {
	if p.IsDraining() && p.live == 0 && !p.closed {
		p.sessions.Poller.Unwatch(p.FD)
		p.free()
	}
}

// free closes a port that was opened.
func (p *port) free() {
	p.leave()
	p.sessions.Engine.Budget.ReleaseOfListener()
}

func (p *port) leave() {
	u := p.sessions
	u.out.Send() // of its sessions, before their socket is another's
	p.countLost()
	p.closed = true
	p.Forget()
	socket.Close(p.FD)
	u.ports.Remove(p.Token.Index)
}

// endSessions ends the sessions that cannot go on, of those in a few places of the loop's. What they were answered before
// has been sent.
func (p *port) endSessions(from int) (next int) {
	u := p.sessions
	u.out.Send()
	sessions, next := u.all.Some(from, reactor.PlacesAStep)
	for f := range sessions {
		if (*f).port != p {
			continue
		}
		if why, ends := p.Ends(&(*f).Session, p.closed); ends {
			u.end(*f, why)
		}
	}
	return next
}

// countLost counts the datagrams of clients that the kernel had no room for, of a port that was read since it was last asked.
func (p *port) countLost() {
	if !p.read {
		return
	}
	p.read = false
	if lost, ok := sockopt.Lost(p.FD); ok {
		p.CountLost(lost)
	}
}

// Asked reads what clients have sent to the port that an event is about, unless that has been closed.
func (u *Sessions) Asked(t reactor.Token) {
	if p := u.ports.At(t.Index, t.Generation); p != nil {
		u.receive(*p)
	}
}

// receive reads what clients send, a batch at a time, for at most a few batches. To begin a session takes far
// longer than to go on with one, so where many are begun, batches are small: all other clients of the
// loop would wait for them. Once the turn has carried as many datagrams as it may, each port is read one small batch.
// A port that cannot be read is left alone for a while: the kernel would report it in every turn.
func (u *Sessions) receive(p *port) {
	if p.closed {
		return
	}
	if u.in == nil {
		u.in = socket.NewReceiveBatch()
	}
	for range 4 {
		in := u.in
		batch, last := p.batch, u.datagrams >= datagramsATurn
		if last {
			batch = fewSessions
		}
		n, errno := in.Receive(p.FD, batch)
		switch errno {
		case 0:
			p.Served()
			u.datagrams += n
			if !p.read {
				p.read = true
				u.read = append(u.read, p)
			}
		case unix.EAGAIN, unix.ECONNREFUSED: // the latter: a client that went away refuses our reply
			return
		default:
			u.Engine.Lines.ReportRead(p.Owner.Load().Key, errno)
			u.Pauses.Suspend(&p.Watched)
			return
		}
		before := u.begun
		p.queue = unasked
		for i := range n {
			client, local, datagram := in.Datagram(i)
			if p.Received(client, len(datagram)) {
				u.carry(p, admit.SessionKey{Client: client, Local: local}, datagram)
			}
			if p.closed { // with its last session, while it drains
				p.Abandon(n - i - 1)
				return
			}
		}
		switch begun := u.begun - before; {
		case begun >= fewSessions:
			p.batch = fewSessions
			return
		case last || n < p.batch:
			return
		default:
			p.batch = min(2*p.batch, socket.DatagramBatch)
		}
	}
}

// carry has the client's session send a datagram on. A client without one is given one.
func (u *Sessions) carry(p *port, key admit.SessionKey, datagram []byte) {
	if f := p.clients[key]; f != nil && u.forward(f, datagram) {
		return
	}
	if f := u.begin(p, key); f != nil {
		u.forward(f, datagram)
		u.redirect(f) // it has something to send now
	}
}

// begin starts a session for a client, or drops its datagram.
func (u *Sessions) begin(p *port, key admit.SessionKey) *session {
	owner := p.Owner.Load()
	if !p.MayBegin(owner, key, p.isCrowded) {
		return nil
	}
	f := &session{port: p, fd: socket.None}
	evicted, ok := p.Begin(&f.Session, f, owner, key)
	if !ok {
		return nil
	}
	if evicted != nil {
		if other, ok := evicted.Session.(*session); ok && other.port.sessions == u {
			u.evict(other)
		} else {
			evicted.Session.Evict()
		}
	}
	u.begun++
	u.place(f)
	p.clients[key] = f
	return f
}

// isCrowded reports whether more than half of the queue was taken when a newcomer first asked in this batch: see
// UDPQueue. To ask is a system call.
func (p *port) isCrowded() bool {
	if p.queue == unasked {
		p.queue = roomy
		if used, most, ok := sockopt.QueueOf(p.FD); ok && used > most/2 {
			p.queue = crowded
		}
	}
	return p.queue == crowded
}

// fewSessions is how many sessions may begin in one batch before batches become as small as that.
const fewSessions = 8
