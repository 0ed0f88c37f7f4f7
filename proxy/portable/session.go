package portable

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/proxy/udp"
)

// A session carries the datagrams of one UDP client as [udp.Session] says. Replies go on leaving from the address that
// the client spoke to, whichever endpoint they are from.
//
// Two goroutines work on a session: the socket's, in forward, and its own, in run. The latter finds
// endpoints and connects to them: a session without a backend is one that it finds an endpoint for. Any goroutine may stop it.
type session struct {
	udp.Session
	socket *udpSocket

	ctx    context.Context // ends with the session
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned

	mu      sync.Mutex  // guards Session, as it says, and backend. Held while a backend of ours is sent to or read from, except in handOver and udpbackend_other.go
	backend *udpBackend // nil while an endpoint is being found
}

func newSession(u *udpSocket) *session {
	s := &session{socket: u, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(u.ctx)
	return s
}

// forward sends what the client sent on to the endpoint, or puts it aside while there is none. It
// returns false when the session has ended. It never waits.
func (s *session) forward(datagram []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Counts() && !s.Ask() {
		return false
	}
	for {
		verdict := s.Forward(datagram)
		switch verdict {
		case udp.Send:
			sent, err := s.SendOn(datagram, s.backend.send)
			if err != nil {
				s.refusedLocked(s.backend, err)
				continue
			}
			if sent {
				s.Carried(datagram)
			}
		case udp.Move:
			s.leaveLocked()
		}
		return verdict != udp.Over
	}
}

// refusedLocked takes the session from an endpoint that refuses: who reads the port and who reads the
// endpoint may both hear of it.
func (s *session) refusedLocked(b *udpBackend, err error) {
	if s.Refused(&b.Visit, err) == udp.Move {
		s.leaveLocked()
	}
}

// leaveLocked takes the session from its backend, if it has one, and wakes run to find another.
func (s *session) leaveLocked() {
	if b := s.backend; b != nil {
		s.backend = nil
		_ = b.conn.SetReadDeadline(aLongTimeAgo) // fails only when run has closed it: then it is awake
	}
}

// run is the session's own goroutine: it carries the replies of one endpoint after another until
// the session ends. It is given its first endpoint to try, or else the backend that came of that.
func (s *session) run(first *rotation.Endpoint, b *udpBackend) {
	place := s.socket.engine.roll.add(s)
	defer s.socket.engine.roll.remove(place)
	defer s.finish()
	if first != nil {
		b = s.try(first)
	}
	for b != nil || s.move(&b) {
		s.carryReplies(b)
		s.countLost(b)
		s.Abandon(sockopt.UnreadBy(b.conn))
		b.conn.Close()
		s.mu.Lock()
		s.Departed(&b.Visit, monotonic.Now())
		s.mu.Unlock()
		b = nil
	}
}

// carryReplies gives the client what the endpoint sends, until the session has left that endpoint.
func (s *session) carryReplies(b *udpBackend) {
	var verdict udp.Verdict
	found := func(n int, err error) { verdict = s.foundLocked(b, n, err) }
	for {
		buf, n, err := b.receive(&s.mu, found)
		switch {
		case err == nil:
			if verdict == udp.Send {
				_, _, err = s.socket.conn.WriteMsgUDPAddrPort(buf[:n], s.Control, s.Key.Client)
				s.Delivered(n, err)
				s.endAnswered()
			}
			udp.DatagramBuffers.Put(buf)
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !s.stay(b) {
				return
			}
		default:
			return // the endpoint refuses: the session has left it
		}
	}
}

// endAnswered ends the session if its client was given all replies that the service expects.
func (s *session) endAnswered() {
	if !s.Counts() {
		return
	}
	s.mu.Lock()
	answered := s.IsAnswered()
	s.mu.Unlock()
	if answered {
		s.stop(traffic.Answered)
	}
}

// foundLocked notes what a read from the endpoint has found, a datagram of n bytes or an error, and says what becomes of a datagram.
func (s *session) foundLocked(b *udpBackend, n int, err error) udp.Verdict {
	if err != nil {
		s.refusedLocked(b, err)
		return udp.Done
	}
	verdict := s.Answered(&b.Visit, n)
	if verdict == udp.Move {
		s.leaveLocked()
	}
	if s.backend == b && !b.isRead {
		b.isRead = true
		_ = b.conn.SetReadDeadline(time.Now().Add(min(udp.CountPeriod, s.socket.Silence()))) // see stay
	}
	return verdict
}

// stay is asked when the read deadline of b has passed. The deadline was right when it was set;
// since then either side may have spoken, which moves it: this way no timer is touched for each
// datagram. Otherwise the session has been silent for too long, and ends.
func (s *session) stay(b *udpBackend) bool {
	s.countLost(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	b.isRead = false
	if s.backend != b {
		return false // the deadline was a wake-up call: the session has left
	}
	rest, idle := s.IsIdle()
	if !idle && b.conn.SetReadDeadline(time.Now().Add(rest)) == nil {
		return true
	}
	s.EndIdle() // in the same step, so that nothing can be forwarded in between
	s.cutLocked()
	return false
}

// countLost counts the replies of b that the kernel had no room for.
func (s *session) countLost(b *udpBackend) {
	if lost, ok := sockopt.LostBy(b.conn); ok {
		s.CountLost(&b.Visit, lost)
	}
}

// lookAgain has the session look whether it has been silent for too long: its port drains, or has another owner.
func (s *session) lookAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.backend; b != nil {
		_ = b.conn.SetReadDeadline(aLongTimeAgo) // see stay; fails only when run has closed it
	}
}

// stop ends the session. Its goroutine finishes soon after. It is safe to repeat.
func (s *session) stop(why traffic.Reason) {
	s.mu.Lock()
	s.endLocked(why)
	s.mu.Unlock()
	s.leaveTables()
}

// leaveTables makes the session unknown to the socket and to the limits.
func (s *session) leaveTables() {
	s.socket.forget(s)
	s.socket.engine.Sessions.Remove(&s.Entry)
}

// Evict ends the session for the sake of another one.
func (s *session) Evict() { s.stop(traffic.Evicted) }

func (s *session) endLocked(why traffic.Reason) {
	s.End(why)
	s.cutLocked()
}

// cutLocked wakes run, for the session has ended.
func (s *session) cutLocked() {
	s.cancel()
	s.leaveLocked()
}

// finish gives back what the session held, and tells of its end.
func (s *session) finish() {
	s.mu.Lock()
	if s.ctx.Err() != nil { // most often it has ended; or its socket was closed just now
		why, _ := s.socket.ends(s)
		s.End(why)
	}
	s.GiveUp()
	s.cancel()
	s.mu.Unlock()
	s.leaveTables()
	s.Finish()
	s.socket.returned(s)
	close(s.done)
}
