package portable

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/proxy/udp"
	"kubeproxy/registry"
)

// listenUDP opens the socket of a port.
func (e *Engine) listenUDP(id registry.ListenerID, owner *atomic.Pointer[engine.Claim]) (engine.Socket, error) {
	conn, err := e.OpenUDP(id)
	if err != nil {
		return nil, err
	}
	u := &udpSocket{
		engine:   e,
		conn:     conn,
		sessions: make(map[admit.SessionKey]*session),
		running:  make(map[*session]struct{}),
	}
	u.Init(&e.Base, conn.LocalAddr().(*net.UDPAddr).AddrPort().Port(), owner)
	if err := u.queue.Init(conn); err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.SetReadBuffer(udp.ReceiveBuffer) // a smaller one works too
	if lost, ok := sockopt.LostBy(conn); ok {
		u.AdoptLost(lost) // of a predecessor's socket
	}
	u.ctx, u.cancel = context.WithCancel(e.Ctx)
	stop := context.AfterFunc(e.Ctx, u.Close)
	serving := e.serving
	e.Work.Go(func() {
		defer stop()
		if waitFor(u.ctx, serving) {
			u.read()
		}
	})
	return u, nil
}

// read hands on what clients send, until the socket is closed. An error must not end it: v0.4 was
// left with an open port that no goroutine read.
func (u *udpSocket) read() {
	buf, control := make([]byte, udp.MaxDatagram), make([]byte, sockopt.ReceiptSpace)
	var pause time.Duration
	isRead := false // something was read since lost datagrams were last counted; the deadline for the next count is set
	for {
		n, controlled, _, client, err := u.conn.ReadMsgUDPAddrPort(buf, control)
		switch {
		case err == nil:
			pause = 0
			if !isRead {
				isRead = true
				_ = u.conn.SetReadDeadline(time.Now().Add(udp.CountPeriod)) // fails only when the socket is closed
			}
			key := admit.SessionKey{
				Client: netip.AddrPortFrom(client.Addr().Unmap(), client.Port()),
				Local:  sockopt.ParseReceipt(control[:controlled]),
			}
			if u.Received(key.Client, n) {
				u.carry(key, buf[:n])
			}
		case errors.Is(err, os.ErrDeadlineExceeded):
			isRead = false
			_ = u.conn.SetReadDeadline(time.Time{})
			if lost, ok := sockopt.LostBy(u.conn); ok {
				u.CountLost(lost)
			}
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, syscall.ECONNREFUSED):
			// A client that went away refuses our reply. That is no fault of the port.
		default:
			pause = min(max(2*pause, engine.FirstPause), engine.LastPause)
			u.engine.Lines.ReportRead(u.Owner.Load().Key, err)
			sleep(u.ctx, pause)
		}
	}
}

// carry has the client's session send a datagram on. A client without one is given one.
func (u *udpSocket) carry(key admit.SessionKey, datagram []byte) {
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
		u.engine.Lines.Drop(u.Owner.Load(), traffic.DropEnded, 1, key.Client)
		return
	}
	u.begin(key, datagram)
}

// begin starts a session for a client, if it may have one, and gives it the datagram that it begins with.
//
// The datagram is the session's before anything else can happen to it: if the session comes to nothing,
// because no endpoint can be had, it takes the datagram with it. So one datagram never begins two.
func (u *udpSocket) begin(key admit.SessionKey, datagram []byte) *session {
	owner := u.Owner.Load()
	if !u.MayBegin(owner, key, u.queue.IsCrowded) {
		return nil
	}
	s := newSession(u)
	evicted, ok := u.Begin(&s.Session, s, owner, key)
	if !ok {
		s.cancel()
		return nil
	}
	if evicted != nil {
		evicted.Session.Evict()
	}
	u.add(s)
	// A literal address is connected to at once, so that a client's first burst can pass. A name has
	// to be looked up, which may take seconds: not here, where all clients of the port wait (D36).
	var b *udpBackend
	first, ok := s.Next(monotonic.Now())
	if ok && first.Addr.Host == "" {
		b = s.try(first)
		first = nil
	}
	if !s.forward(datagram) {
		s.Drop(traffic.DropEnded, 1) // the port was closed or changed hands just now
	}
	u.engine.Work.Go(func() { s.run(first, b) })
	return s
}

// add makes s known, unless it comes too late: the port was closed or has changed hands since s was
// begun, and who then ended the sessions could not see it yet.
func (u *udpSocket) add(s *session) {
	u.mu.Lock()
	why, ends := u.ends(s)
	if !ends {
		u.sessions[s.Key] = s
		u.running[s] = struct{}{}
	}
	u.mu.Unlock()
	if ends {
		s.stop(why)
	}
}

// ownerChangedTimeout bounds how long OwnerChanged waits for replies that are being sent. Only a network card that has stopped sending
// makes it wait so long.
const ownerChangedTimeout = time.Second

// Ready does not wait: a goroutine of its own reads the datagrams.
func (u *udpSocket) Ready() error { return nil }

// OwnerChanged ends the sessions that the new owner of the port does not keep.
func (u *udpSocket) OwnerChanged() {
	_ = u.conn.SetWriteDeadline(time.Now().Add(ownerChangedTimeout)) // fails only when the socket is closed
	u.endSessions()
	_ = u.conn.SetWriteDeadline(time.Time{})
	u.lookAgain() // the new owner may end those that are silent sooner
}

// lookAgain has all sessions look whether they have been silent for too long, and returns how many there are.
func (u *udpSocket) lookAgain() int {
	u.mu.Lock()
	running := slices.Collect(maps.Keys(u.running))
	u.mu.Unlock()
	for _, s := range running {
		s.lookAgain()
	}
	return len(running)
}

// Drain lets no new client in. The last session frees the port: see returned.
func (u *udpSocket) Drain() {
	u.Port.Drain()
	if u.lookAgain() == 0 {
		u.Close()
	}
}

// Close frees the port, and ends its sessions. It is safe to repeat.
func (u *udpSocket) Close() {
	u.closing.Do(func() {
		u.cancel()
		u.conn.Close()
		u.endSessions()
		u.engine.Budget.ReleaseOfListener()
	})
}

// endSessions ends the sessions that cannot go on. When it returns they send no more replies, and nor
// do those of them that had ended before, but were still busy with one.
func (u *udpSocket) endSessions() {
	ending := make(map[*session]traffic.Reason)
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
