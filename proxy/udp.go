package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/golang/glog"

	"golang.org/x/time/rate"
)

// A udpSocket is the open UDP socket of one port. All its clients speak to this one socket, so one
// goroutine reads what all of them send, and it must not wait for any of them: it finds the
// session, has it send the datagram on, and reads the next. What comes back is the business of
// each session's own goroutine.
//
//	client ──▶ udpSocket.read ──▶ session.forward ──▶ udpBackend ──▶ endpoint
//	client ◀──────────────── session.carryReplies ◀── udpBackend ◀── endpoint
type udpSocket struct {
	engine *portable
	conn   *net.UDPConn
	port   uint16
	queue  udpQueue
	owner  *atomic.Pointer[claim]
	ranks  ranks         // guarded by the session limit's mu
	pace   *rate.Limiter // of sessions that begin

	ctx     context.Context // ends when the socket is closed
	cancel  context.CancelFunc
	closing sync.Once

	mu       sync.Mutex // guards the fields below
	sessions map[sessionKey]*session
	running  map[*session]struct{} // those whose run has not returned, so also some that have ended
}

// udpReceiveBuffer is what we ask the kernel to hold for a port while the read loop is not
// running. Its usual 208 KiB are gone after two datagrams of full length. The kernel grants as much
// as net.core.rmem_max allows. (Of what 100 known clients sent while 100,000 forged senders did, all
// was answered with 4 MiB, 94 % with 1 MiB, 86 % with 208 KiB; see udpQueue.)
const udpReceiveBuffer = 4 << 20

// listenUDP opens the socket of a port. Bound to 0.0.0.0 it serves both families, as in v0.4: for a
// wildcard address package net opens an IPv6 socket that takes IPv4 too, or an IPv4 socket where
// IPv6 is off.
func (e *portable) listenUDP(addr netip.AddrPort, owner *atomic.Pointer[claim]) (socket, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	u := &udpSocket{
		engine:   e,
		conn:     conn,
		port:     conn.LocalAddr().(*net.UDPAddr).AddrPort().Port(),
		owner:    owner,
		ranks:    ranks{max: e.cfg.MaxUDPSessionsPerService, full: dropServiceLimit},
		pace:     newPortPace(e.cfg.MaxNewUDPSessions),
		sessions: make(map[sessionKey]*session),
		running:  make(map[*session]struct{}),
	}
	if err := errors.Join(askReceipts(conn), u.queue.init(conn)); err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.SetReadBuffer(udpReceiveBuffer) // a smaller one works too
	u.ctx, u.cancel = context.WithCancel(e.ctx)
	stop := context.AfterFunc(e.ctx, u.close)
	e.work.Go(func() {
		defer stop()
		u.read()
	})
	return u, nil
}

// read hands on what clients send, until the socket is closed. An error must not end it: v0.4 was
// left with an open port that nobody read.
func (u *udpSocket) read() {
	buf, control := make([]byte, maxDatagram), make([]byte, receiptSpace)
	var pause time.Duration
	var lost uint32
	for {
		n, controlled, _, client, err := u.conn.ReadMsgUDPAddrPort(buf, control)
		switch {
		case err == nil:
			pause = 0
			said := parseReceipt(control[:controlled])
			key := sessionKey{
				client: netip.AddrPortFrom(client.Addr().Unmap(), client.Port()),
				local:  said.local,
			}
			if more := said.lost - lost; said.lost != 0 && more != 0 {
				lost = said.lost
				u.engine.lines.drop(u.owner.Load(), dropQueueFull, int(more), key.client) // who sent those is not known
			}
			u.carry(key, buf[:n])
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, syscall.ECONNREFUSED):
			// A client that went away refuses our reply. That is no fault of the port.
		default:
			pause = min(max(2*pause, firstPause), lastPause)
			u.engine.lines.reportRead(u.owner.Load().key, err)
			sleep(u.ctx, pause)
		}
	}
}

// carry has the client's session send a datagram on. A client without one is given one.
func (u *udpSocket) carry(key sessionKey, datagram []byte) {
	if len(datagram) == maxDatagram {
		u.engine.lines.drop(u.owner.Load(), dropTooLong, 1, key.client)
		return
	}
	u.mu.Lock()
	s := u.sessions[key]
	u.mu.Unlock()
	if s != nil {
		if s.forward(datagram) {
			return
		}
		u.forget(s) // it has just ended; the client begins anew
	}
	if u.ctx.Err() != nil {
		u.engine.lines.drop(u.owner.Load(), dropEnded, 1, key.client)
		return
	}
	u.begin(key, datagram)
}

// begin starts a session for a client, and gives it the datagram that it begins with, or drops that for
// one of many good reasons.
//
// The datagram is the session's before anything else can happen to it: if the session comes to nothing,
// because no endpoint can be had, it takes the datagram with it. So one datagram never begins two.
//
// A client that is given no session has no ending either, only a dropped datagram. A TCP client has been
// accepted, and is owed a line of its own; a datagram comes unasked, and who forges a million senders is not to
// have a million lines written.
func (u *udpSocket) begin(key sessionKey, datagram []byte) *session {
	e, owner := u.engine, u.owner.Load()
	refuse := func(why DropReason) *session {
		u.engine.lines.drop(owner, why, 1, key.client)
		return nil
	}
	switch {
	case !owner.allows(key.client.Addr()):
		return refuse(dropSource)
	case owner.rotation.isEmpty(): // nobody is evicted for this
		return refuse(dropNoEndpoints)
	case u.queue.isCrowded(), e.sessions.lagsBehind(), !u.pace.Allow(), !e.newcomers.Allow():
		return refuse(dropOverload)
	case e.resolver.own.ownsClient(key):
		return refuse(dropLoop)
	case !e.budget.tryAcquire(1):
		return refuse(dropDescriptorLimit)
	}
	s := newSession(u, key, owner)
	evicted, full, ok := e.sessions.admit(&s.place)
	if !ok {
		s.cancel()
		e.budget.release(1)
		return refuse(full)
	}
	if evicted != nil {
		evicted.tenant.evict()
	}
	if v := glog.V(2); v {
		v.Infof("new UDP session of %v for %s", key.client, owner.key)
	}
	u.add(s)
	s.choice = owner.choose(key.client.Addr()) // only now: who is not let in takes nobody's turn
	// A literal address is connected to at once, so that a client's first burst can pass. A name has
	// to be looked up, which may take seconds: not here, where everybody waits (D36).
	var b *udpBackend
	first, ok := s.choice.next()
	if ok && first.addr.Host == "" {
		b = s.try(first)
		first = nil
	}
	if !s.forward(datagram) {
		s.drop(dropEnded, 1) // the port was closed or changed hands just now
	}
	e.work.Go(func() { s.run(first, b) })
	return s
}

// add makes s known, unless it comes too late: the port was closed or has changed hands since s was
// begun, and who then ended the sessions could not see it yet.
func (u *udpSocket) add(s *session) {
	s.claim.tally.active.Add(1)
	u.engine.sessions.existing.Add(1)
	u.mu.Lock()
	why, ends := u.ends(s)
	if !ends {
		u.sessions[s.key] = s
		u.running[s] = struct{}{}
	}
	u.mu.Unlock()
	if ends {
		s.stop(why)
	}
}

// ends tells whether a session cannot go on, and why.
func (u *udpSocket) ends(s *session) (why Reason, ends bool) {
	return sessionEnds(u.ctx.Err() != nil, u.owner.Load(), s.claim, s.key.client.Addr())
}

// sessionEnds tells whether a session that a client began under a claim cannot go on, and why, as things
// stand with its socket and who owns that.
func sessionEnds(closed bool, owner, began *claim, client netip.Addr) (why Reason, ends bool) {
	switch {
	case closed && !owner.tenure.over.Load():
		return Shutdown, true // the port was closed under a service that goes on wanting it
	case closed, owner.rotation != began.rotation:
		return ServiceRemoved, true
	case !owner.keeps(began, client):
		return SourceNotAllowed, true
	}
	return 0, false
}

// forget makes s unknown: the client's next datagram begins another. It is safe to repeat.
func (u *udpSocket) forget(s *session) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sessions[s.key] == s {
		delete(u.sessions, s.key)
	}
}

// returned notes that nothing more will come of s.
func (u *udpSocket) returned(s *session) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.running, s)
}

// ownerChangedTimeout bounds how long ownerChanged waits for replies that are just being sent. It takes a
// network card that has stopped sending to need it.
const ownerChangedTimeout = time.Second

func (u *udpSocket) ownerChanged() {
	_ = u.conn.SetWriteDeadline(time.Now().Add(ownerChangedTimeout)) // fails only when the socket is closed
	u.endSessions()
	_ = u.conn.SetWriteDeadline(time.Time{})
}

func (u *udpSocket) close() {
	u.closing.Do(func() {
		u.cancel()
		u.conn.Close()
		u.endSessions()
		u.engine.budget.releaseOfListener()
	})
}

// endSessions ends the sessions that cannot go on. When it returns they send no more replies, and nor
// do those of them that had ended before, but were still busy with one.
func (u *udpSocket) endSessions() {
	ending := make(map[*session]Reason)
	u.mu.Lock()
	for s := range u.running {
		if why, ends := u.ends(s); ends {
			ending[s] = why
		}
	}
	u.mu.Unlock()
	for s, why := range ending {
		s.stop(why)
	}
	for s := range ending {
		<-s.done
	}
}
