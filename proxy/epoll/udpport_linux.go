package epoll

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/proxy/udp"
)

// The sessions of a loop are all that it holds for UDP: its ports, the sessions of their clients, and what is read and sent for
// them in batches. A session and a port find each other by their pointers; the loop finds them by the places that events bear.
type sessions struct {
	engine   *engine.Base
	turn     *turn
	poller   *poller
	requests *requests
	pauses   *pauses
	searches *searches

	ports slab[*epollUDP]
	all   slab[*session]
	begun int // ever

	in        *receiveBatch // nil before the first datagram of a client
	out       *sendBatch    // nil before the first of an endpoint
	datagrams int           // carried in this turn

	sweepAt time.Duration // when idle ones are looked for next
	swept   int           // how many places have been looked at, of this sweep
}

// An epollUDP is one open UDP port of the epoll engine: the socket that all its clients speak to, and
// their sessions. What they send is read many datagrams at a time (recvmmsg(2)), and what they are
// answered is sent many at a time, at the end of the turn (sendmmsg(2)).
type epollUDP struct {
	udp.Port
	portSocket
	sessions *sessions // that it is a port of
	closed   bool
	batch    int    // how many datagrams are read at once
	queue    packed // what is known of the kernel's queue; of this batch
	dual     bool   // it serves both families, and knows IPv4 clients by mapped addresses

	clients map[admit.SessionKey]*session
}

// open opens the socket of a port. As with TCP, package net opens it. Any goroutine may call it.
func (u *sessions) open(addr netip.AddrPort, owner *atomic.Pointer[engine.Claim]) (engine.Socket, error) {
	fd, err := openUDP(addr)
	if err != nil {
		return nil, err
	}
	p := &epollUDP{
		sessions:   u,
		portSocket: portSocket{fd: fd},
		clients:    make(map[admit.SessionKey]*session),
		batch:      datagramBatch,
		dual:       family(fd) == unix.AF_INET6,
	}
	p.Init(u.engine, addr.Port(), owner)
	u.requests.call(func() {
		slot, index, generation := u.ports.add()
		*slot = p
		p.token = token{asking, index, generation}
		err = u.poller.watch(fd, p.token, unix.EPOLLIN)
	})
	if err != nil {
		u.requests.call(p.leave)
		return nil, err
	}
	return p, nil
}

// openUDP opens a socket that tells, with each datagram, which of our addresses it was sent to.
func openUDP(addr netip.AddrPort) (fd int, err error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := sockopt.AskReceipts(conn); err != nil {
		return 0, err
	}
	_ = conn.SetReadBuffer(udpBuffer) // smaller ones work too
	_ = conn.SetWriteBuffer(udpBuffer)
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	return duplicate(raw)
}

const udpBuffer = udp.ReceiveBuffer

// OwnerChanged ends the sessions that the new owner of the port does not keep.
func (p *epollUDP) OwnerChanged() {
	p.sessions.requests.inSteps(p.endSessions)
}

// Close ends the sessions in steps: there may be tens of thousands. Meanwhile nothing is read from the port.
func (p *epollUDP) Close() {
	u := p.sessions
	u.requests.call(func() {
		p.closed, p.paused = true, false
		u.poller.unwatch(p.fd)
	})
	u.requests.inSteps(p.endSessions)
	u.requests.call(p.leave)
	u.engine.Budget.ReleaseOfListener()
}

func (p *epollUDP) leave() {
	u := p.sessions
	u.out.send() // of its sessions, before their socket is another's
	p.closed, p.paused = true, false
	closeFD(p.fd)
	u.ports.remove(p.token.index)
}

// endSessions ends the sessions that cannot go on, of those in a few places of the loop's. What they were answered before
// has been sent.
func (p *epollUDP) endSessions(from int) (next int) {
	u := p.sessions
	u.out.send()
	sessions, next := u.all.some(from, endsAtOnce)
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

// receive reads what clients send, a batch at a time, for at most a few batches. To begin a session takes far
// longer than to go on with one, so where many are begun, batches are small: everybody else on the
// loop would wait for them. Once the turn has carried as many datagrams as it may, each port is read one small batch.
// A port that cannot be read is left alone for a while: the kernel would report it in every turn.
func (u *sessions) receive(p *epollUDP) {
	if p.closed {
		return
	}
	if u.in == nil {
		u.in = newReceiveBatch()
	}
	for range 4 {
		in := u.in
		batch, last := p.batch, u.datagrams >= datagramsATurn
		if last {
			batch = fewSessions
		}
		n, errno := in.receive(p.fd, batch)
		switch errno {
		case 0:
			p.pause = 0
			u.datagrams += n
		case unix.EAGAIN, unix.ECONNREFUSED: // the latter: a client that went away refuses our reply
			return
		default:
			u.engine.Lines.ReportRead(p.Owner.Load().Key, errno)
			u.pauses.suspend(&p.portSocket)
			return
		}
		before := u.begun
		p.queue = unasked
		for i := range n {
			client, said, datagram := in.datagram(i)
			if p.Received(client, len(datagram), said.Lost) {
				u.carry(p, admit.SessionKey{Client: client, Local: said.Local}, datagram)
			}
			if p.closed {
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
			p.batch = min(2*p.batch, datagramBatch)
		}
	}
}

// carry has the client's session send a datagram on. A client without one is given one.
func (u *sessions) carry(p *epollUDP, key admit.SessionKey, datagram []byte) {
	if f := p.clients[key]; f != nil {
		u.forward(f, datagram)
		return
	}
	if f := u.begin(p, key); f != nil {
		u.forward(f, datagram)
		u.redirect(f) // it has something to send now
	}
}

// begin starts a session for a client, or drops its datagram.
func (u *sessions) begin(p *epollUDP, key admit.SessionKey) *session {
	owner := p.Owner.Load()
	if !p.MayBegin(owner, key, p.isCrowded) {
		return nil
	}
	f := &session{port: p, fd: noDescriptor}
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
	slot, index, generation := u.all.add()
	*slot = f
	f.index, f.generation = index, generation
	p.clients[key] = f
	return f
}

// packed is what is known of how full the kernel's queue of a port is.
type packed uint8

const (
	unasked packed = iota
	roomy
	crowded
)

// isCrowded tells whether more than half of the queue was taken when a newcomer first asked in this batch: see
// UDPQueue. To ask is a system call.
func (p *epollUDP) isCrowded() bool {
	if p.queue == unasked {
		p.queue = roomy
		if used, most, ok := sockopt.QueueOf(p.fd); ok && used > most/2 {
			p.queue = crowded
		}
	}
	return p.queue == crowded
}

// evict ends a session for the sake of another one.
func (u *sessions) evict(f *session) { u.end(f, traffic.Evicted) }

// end ends a session, unless it has ended.
func (u *sessions) end(f *session, why traffic.Reason) {
	if !f.Ended() {
		f.End(why)
		u.finish(f)
	}
}

// finish gives back what a session has that has ended.
func (u *sessions) finish(f *session) {
	if u.out.owes(f) {
		u.out.send() // they count
	}
	u.depart(f)
	delete(f.port.clients, f.Key)
	u.all.remove(f.index)
	f.Finish()
}

// datagramsATurn is how many datagrams a turn carries, about: past that each port is read fewSessions more, and each session one.
const datagramsATurn = 2048

// sessionsATurn is how many places of sessions are looked at in a turn for those that have been silent for too long.
const sessionsATurn = 256

// due is when sweep has something to do.
func (u *sessions) due() time.Duration {
	if u.all.used > 0 {
		return u.sweepAt
	}
	return never
}

// sweep ends the sessions that have been silent for too long, of the next few places. When the last were looked at, the
// first are looked at again after a while.
func (u *sessions) sweep() {
	if u.turn.now < u.due() {
		return
	}
	sessions, next := u.all.some(u.swept, sessionsATurn)
	if u.swept = next; next < 0 {
		u.swept, u.sweepAt = 0, u.turn.now+max(u.engine.Cfg.UDPTimeout/32, time.Millisecond)
	}
	for f := range sessions {
		if _, idle := (*f).IsIdle(); idle {
			u.end(*f, traffic.Idle)
		}
	}
}
