package epoll

import (
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
)

// An epollUDP is one open UDP port of the epoll engine: the socket that all its clients speak to, and
// their sessions. What they send is read many datagrams at a time (recvmmsg(2)), and what they are
// answered is sent many at a time, at the end of the turn (sendmmsg(2)).
type epollUDP struct {
	engine.UDPPort
	portSocket
	loop   *loop
	closed bool
	batch  int    // how many datagrams are read at once
	queue  packed // what is known of the kernel's queue; of this batch
	dual   bool   // it serves both families, and knows IPv4 clients by mapped addresses

	sessions map[admit.SessionKey]*session
}

// listenUDP opens the socket of a port. As with TCP, package net opens it.
func (e *Engine) listenUDP(addr netip.AddrPort, owner *atomic.Pointer[engine.Claim]) (engine.Socket, error) {
	l, err := e.loopFor()
	if err != nil {
		return nil, err
	}
	fd, err := openUDP(addr)
	if err != nil {
		return nil, err
	}
	p := &epollUDP{
		loop:       l,
		portSocket: portSocket{fd: fd},
		sessions:   make(map[admit.SessionKey]*session),
		batch:      datagramBatch,
		dual:       family(fd) == unix.AF_INET6,
	}
	p.Init(&e.Base, addr.Port(), owner)
	l.call(func() {
		slot, index, generation := l.udpPorts.add()
		*slot = p
		p.token = token{asking, index, generation}
		err = l.watch(fd, p.token, unix.EPOLLIN)
	})
	if err != nil {
		l.call(p.leave)
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

const udpBuffer = engine.UDPReceiveBuffer

// OwnerChanged ends the sessions that the new owner of the port does not keep.
func (p *epollUDP) OwnerChanged() {
	p.loop.inSteps(p.endSessions)
}

// Close ends the sessions in steps: there may be tens of thousands. Meanwhile nothing is read from the port.
func (p *epollUDP) Close() {
	p.loop.call(func() {
		p.closed, p.paused = true, false
		_ = epollCtl(p.loop.epfd, unix.EPOLL_CTL_DEL, p.fd, new(unix.EpollEvent)) // it may not be there: see suspend
	})
	p.loop.inSteps(p.endSessions)
	p.loop.call(p.leave)
	p.loop.engine.Budget.ReleaseOfListener()
}

func (p *epollUDP) leave() {
	p.loop.sendReplies() // of its sessions, before their socket is another's
	p.closed, p.paused = true, false
	closeFD(p.fd)
	p.loop.udpPorts.remove(p.token.index)
}

// endSessions ends the sessions that cannot go on, of those in a few places of the loop's. What they were answered before
// has been sent.
func (p *epollUDP) endSessions(from int) (next int) {
	p.loop.sendReplies()
	sessions, next := p.loop.sessions.some(from, endsAtOnce)
	for f := range sessions {
		if (*f).port != p {
			continue
		}
		if why, ends := p.Ends(&(*f).UDPSession, p.closed); ends {
			p.loop.endSession(*f, why)
		}
	}
	return next
}

// receive reads what clients send, a batch at a time, for at most a few batches. To begin a session takes far
// longer than to go on with one, so where many are begun, batches are small: everybody else on the
// loop would wait for them. Once the turn has carried as many datagrams as it may, each port is read one small batch.
// A port that cannot be read is left alone for a while: the kernel would report it in every turn.
func (l *loop) receive(p *epollUDP) {
	if p.closed {
		return
	}
	for range 4 {
		in := l.incoming()
		batch, last := p.batch, l.datagrams >= datagramsATurn
		if last {
			batch = fewSessions
		}
		n, errno := in.receive(p.fd, batch)
		switch errno {
		case 0:
			p.pause = 0
			l.datagrams += n
		case unix.EAGAIN, unix.ECONNREFUSED: // the latter: a client that went away refuses our reply
			return
		default:
			l.engine.Lines.ReportRead(p.Owner.Load().Key, errno)
			l.suspend(&p.portSocket)
			return
		}
		before := l.begun
		p.queue = unasked
		for i := range n {
			client, said, datagram := in.datagram(i)
			if p.Received(client, len(datagram), said.Lost) {
				l.carry(p, admit.SessionKey{Client: client, Local: said.Local}, datagram)
			}
			if p.closed {
				return
			}
		}
		switch begun := l.begun - before; {
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
func (l *loop) carry(p *epollUDP, key admit.SessionKey, datagram []byte) {
	if f := p.sessions[key]; f != nil {
		l.forward(f, datagram)
		return
	}
	if f := l.beginSession(p, key); f != nil {
		l.forward(f, datagram)
		l.redirect(f) // it has something to send now
	}
}

// beginSession starts a session for a client, or drops its datagram.
func (l *loop) beginSession(p *epollUDP, key admit.SessionKey) *session {
	owner := p.Owner.Load()
	if !p.MayBegin(owner, key, p.isCrowded) {
		return nil
	}
	f := &session{port: p, fd: noDescriptor}
	evicted, ok := p.Begin(&f.UDPSession, f, owner, key)
	if !ok {
		return nil
	}
	if evicted != nil {
		if other, ok := evicted.Session.(*session); ok && other.port.loop == l {
			l.evict(other)
		} else {
			evicted.Session.Evict()
		}
	}
	l.begun++
	slot, index, generation := l.sessions.add()
	*slot = f
	f.index, f.generation = index, generation
	p.sessions[key] = f
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

func (l *loop) evict(f *session) { l.endSession(f, traffic.Evicted) }

// endSession ends a session, unless it has ended.
func (l *loop) endSession(f *session, why traffic.Reason) {
	if !f.Ended() {
		f.End(why)
		l.finishSession(f)
	}
}

// finishSession gives back what a session has that has ended.
func (l *loop) finishSession(f *session) {
	if l.owes(f) {
		l.sendReplies() // they count
	}
	l.depart(f)
	delete(f.port.sessions, f.Key)
	l.sessions.remove(f.index)
	f.Finish()
}

// sessionsATurn is how many places of sessions are looked at in a turn for those that have been silent for too long.
const sessionsATurn = 256

// idleSessions ends the sessions that have been silent for too long, of the next few places. When the last were looked at, the
// first are looked at again after a while.
func (l *loop) idleSessions() {
	sessions, next := l.sessions.some(l.sweptSessions, sessionsATurn)
	if l.sweptSessions = next; next < 0 {
		l.sweptSessions, l.sweepSessions = 0, l.now+max(l.engine.Cfg.UDPTimeout/32, time.Millisecond)
	}
	for f := range sessions {
		if _, idle := (*f).IsIdle(); idle {
			l.endSession(*f, traffic.Idle)
		}
	}
}

// How many datagrams are read from a port at once, and how many replies are collected before they are
// sent; and how many sessions may begin in one batch before batches become as small as that.
const (
	datagramBatch = 64
	replyBatch    = 64
	fewSessions   = 8
)

// datagramsATurn is how many datagrams a turn carries, about: past that each port is read fewSessions more, and each session one.
const datagramsATurn = 2048

// A receiveBatch is room for a batch of datagrams, their senders, and which of our addresses they were
// sent to.
type receiveBatch struct {
	headers [datagramBatch]mmsghdr
	vectors [datagramBatch]unix.Iovec
	senders [datagramBatch]unix.RawSockaddrAny
	control [datagramBatch][128]byte // no less than ReceiptSpace
	data    [datagramBatch]engine.DatagramBuffer
}

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	unix.Msghdr
	length uint32
}

// incoming returns the loop's receiveBatch. It is made for the first UDP port: what of it no datagram has
// touched takes no memory.
func (l *loop) incoming() *receiveBatch {
	if l.receiveBatch == nil {
		in := new(receiveBatch)
		for i := range in.headers {
			in.vectors[i].Base = &in.data[i][0]
			in.vectors[i].SetLen(engine.MaxDatagram)
			h := &in.headers[i]
			h.Iov = &in.vectors[i]
			h.SetIovlen(1)
			h.Name = (*byte)(unsafe.Pointer(&in.senders[i]))
			h.Control = &in.control[i][0]
		}
		l.receiveBatch = in
	}
	return l.receiveBatch
}

// receive reads as many datagrams as there are, up to most.
func (in *receiveBatch) receive(fd, most int) (n int, errno unix.Errno) {
	for i := range most {
		in.headers[i].Namelen = uint32(unsafe.Sizeof(in.senders[i]))
		in.headers[i].SetControllen(len(in.control[i]))
	}
	return recvmmsg(fd, in.headers[:most])
}

// datagram returns the nth of a batch, with its sender and what the kernel says of it.
func (in *receiveBatch) datagram(n int) (client netip.AddrPort, said sockopt.Receipt, datagram []byte) {
	h := &in.headers[n]
	return addrPort(&in.senders[n]), sockopt.ParseReceipt(in.control[n][:h.Controllen]), in.data[n][:h.length]
}

// A sendBatch is room for a batch of replies.
type sendBatch struct {
	n       int
	replies [replyBatch]reply
	headers [replyBatch]mmsghdr
	vectors [replyBatch]unix.Iovec
	names   [replyBatch]unix.RawSockaddrInet6
	data    [replyBatch]engine.DatagramBuffer
}

// A reply waits to be sent to the client of a session.
type reply struct {
	session *session
	length  int
}

// nextReply returns room for one more reply.
func (l *loop) nextReply() *engine.DatagramBuffer {
	if l.sendBatch == nil {
		l.sendBatch = new(sendBatch)
	}
	if l.sendBatch.n == replyBatch {
		l.sendReplies()
	}
	return &l.sendBatch.data[l.sendBatch.n]
}

// reply has what was read into the room for one more reply sent to the client of f at the end of the turn.
func (l *loop) reply(f *session, length int) {
	l.sendBatch.replies[l.sendBatch.n] = reply{f, length}
	l.sendBatch.n++
}

// owes tells whether a reply to the client of f was collected, and is still to be sent.
func (l *loop) owes(f *session) bool {
	return l.sendBatch != nil && slices.ContainsFunc(l.sendBatch.replies[:l.sendBatch.n], func(r reply) bool { return r.session == f })
}

// sendReplies sends what was collected, a batch for each run of replies that leave from one port.
func (l *loop) sendReplies() {
	out := l.sendBatch
	if out == nil || out.n == 0 {
		return
	}
	for i := range out.n {
		r := &out.replies[i]
		out.vectors[i].Base = &out.data[i][0]
		out.vectors[i].SetLen(r.length)
		h := &out.headers[i]
		h.Iov = &out.vectors[i]
		h.SetIovlen(1)
		var size uintptr
		out.names[i], size = r.session.port.name(r.session.Key.Client)
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&out.names[i])), uint32(size)
		h.Control = nil
		if len(r.session.Control) > 0 {
			h.Control = &r.session.Control[0]
		}
		h.SetControllen(len(r.session.Control))
	}
	for from := 0; from < out.n; {
		to := from + 1
		for to < out.n && out.replies[to].session.port == out.replies[from].session.port {
			to++
		}
		sent, errno := sendmmsg(out.replies[from].session.port.fd, out.headers[from:to])
		if errno != 0 {
			sent = 0
		}
		for _, r := range out.replies[from : from+sent] {
			r.session.Delivered(r.length, nil)
		}
		if from += sent; sent == 0 {
			if errno != unix.ECONNREFUSED { // that was the answer to an earlier one
				r := out.replies[from]
				r.session.Delivered(r.length, errno)
				from++
			}
		}
	}
	clear(out.replies[:out.n])
	out.n = 0
}

// name writes the address of a client as the socket of the port wants it.
func (p *epollUDP) name(client netip.AddrPort) (unix.RawSockaddrInet6, uintptr) {
	if p.dual && client.Addr().Is4() {
		client = netip.AddrPortFrom(netip.AddrFrom16(client.Addr().As16()), client.Port())
	}
	_, name, size := sockaddr(client)
	return name, size
}
