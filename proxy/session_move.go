package proxy

import (
	"bytes"
	"context"
	"net"
	"time"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// How a session gets from one endpoint to the next.
//
//	            leaveLocked: the endpoint is gone, or refused
//	         ┌─────────────────────────────────────────────────┐
//	   a backend                                    no backend: datagrams wait
//	         └─────────────────────────────────────────────────┘
//	            handOver: connected, and what waited has been sent
//
// Anybody who holds mu may take a session from its endpoint; only its own goroutine takes it to the
// next one. (For the first endpoint, before that goroutine runs, begin does.)

// settleTime is how long an endpoint that never answers has not refused, either, when it counts as
// reached. Not every protocol has answers.
const settleTime = time.Second

// aLongTimeAgo as a deadline ends a wait at once.
var aLongTimeAgo = time.Unix(1, 0)

// leaveLocked takes the session from its endpoint, and wakes run to find another.
func (s *session) leaveLocked() {
	b := s.backend
	s.backend = nil
	_ = b.conn.SetReadDeadline(aLongTimeAgo) // fails only when run has closed it: then it is awake
}

// refused takes the session from an endpoint that refuses: who reads the port and who reads the
// endpoint may both hear of it, and the first counts. The datagram that was refused goes to the
// next endpoint, for it reached nobody. (Or almost: of several on their way at once, one may have
// been refused while a later one was not, and is now sent twice. UDP may do that, RFC 768.)
func (s *session) refused(b *udpBackend, err error) {
	if s.current() == b { // else the error may be that the socket was closed
		b.endpoint.failed(registry.UDP)
	}
	why, lost := dropUnreachable, false
	s.mu.Lock()
	switch {
	case s.backend == b:
		b.refused = true
		s.leaveLocked()
		if s.unanswered {
			lost = !s.kept || !s.waitLocked(s.last)
		}
	case s.ended:
		why, lost = dropEnded, true
	}
	s.mu.Unlock()
	if v := glog.V(3); v {
		v.Infof("%s: UDP client %v has to leave %v: %v", s.claim.key, s.key.client, b.endpoint.addr, err)
	}
	if lost {
		s.drop(why, 1)
	}
}

// keepLocked remembers the datagram that is being sent, if it is short: a copy of some hundred bytes
// buys that no answer is lost with an endpoint.
func (s *session) keepLocked(datagram []byte) {
	s.unanswered, s.kept = true, len(datagram) <= maxKept
	if s.kept {
		s.last = append(s.last[:0], datagram...)
	}
}

// waitLocked puts a copy of a datagram aside until there is an endpoint; false: no room for it.
func (s *session) waitLocked(datagram []byte) bool {
	if len(s.waiting) >= maxWaiting || !s.socket.engine.sessions.reserve(datagram) {
		return false
	}
	s.waiting = append(s.waiting, bytes.Clone(datagram))
	return true
}

// current returns the backend of the session; nil while there is none.
func (s *session) current() *udpBackend {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backend
}

// reconsider decides, when the session has left b, whether it may be offered endpoints anew. It may
// if b had been reached. Otherwise it goes on with the endpoints that it was not offered yet, so
// that when all refuse it comes to an end.
func (s *session) reconsider(b *udpBackend) {
	s.why = dropUnreachable
	settled := b.answered || sinceStart()-b.began > settleTime
	if settled || b.endpoint.gone() {
		s.choice, s.why = s.claim.choose(s.key.client.Addr()), dropNoEndpoints
		s.until = sinceStart() + s.socket.engine.cfg.DialTotalTimeout
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.refused && !settled { // then it was only tried
		s.endpoint = s.previous
		s.claim.tally.dialFailures.Add(1)
	}
}

// move connects to the next endpoint that can be; false: there is none in time, or the session has ended.
func (s *session) move(b **udpBackend) bool {
	for s.ctx.Err() == nil {
		e, ok := s.choice.next()
		if !ok || s.choice.offers > 1 && sinceStart() >= s.until {
			return false
		}
		if e.gone() {
			continue
		}
		if *b = s.try(e); *b != nil {
			return true
		}
	}
	return false
}

// try makes e the endpoint of the session, if it can be connected to; nil: it cannot.
func (s *session) try(e *endpoint) *udpBackend {
	b, err := s.dial(e)
	if err == nil {
		if err = s.handOver(b); err == nil {
			s.reached(e)
			return b
		}
		b.conn.Close()
	}
	if s.ctx.Err() != nil {
		return nil // not the endpoint's fault
	}
	switch s.why = whyUnusable(err); s.why {
	case dropDescriptorLimit:
		return nil
	case dropOwnListener, dropNotAllowed, dropLoop:
		s.socket.engine.lines.reportUnusable(s.claim.key, e, err)
		if s.why != dropLoop { // which says something about this client only
			s.choice.unusable(e)
		}
	case dropUnresolved:
		s.choice.unusable(e)
	default:
		s.attempts++
		s.claim.tally.dialFailures.Add(1)
		s.choice.failed(e)
	}
	if v := glog.V(3); v {
		v.Infof("%s: UDP client %v cannot have %v: %v", s.claim.key, s.key.client, e.addr, err)
	}
	return nil
}

// reached notes that e is the endpoint of the session now, unless it refuses.
func (s *session) reached(e *endpoint) {
	s.attempts++
	switch s.endpoint {
	case nil:
		s.dialled = time.Since(s.began)
	case e:
	default:
		s.claim.tally.moved.Add(1)
	}
	s.previous, s.endpoint = s.endpoint, e
	s.choice.reached(e)
	e.given()
	if v := glog.V(3); v {
		v.Infof("%s: UDP %v → %v", s.claim.key, s.key.client, e.addr)
	}
}

// dial opens a socket connected to e. With a host name it may take as long as a look-up takes.
func (s *session) dial(e *endpoint) (*udpBackend, error) {
	cfg := &s.socket.engine.cfg
	ctx, cancel := context.WithTimeout(s.ctx, s.choice.patience())
	defer cancel()
	addrs, err := s.socket.engine.resolver.resolve(ctx, registry.UDP, e.addr)
	if err != nil {
		return nil, err
	}
	var b *udpBackend
	for _, addr := range addrs {
		if s.key.loops(addr, s.socket.port) {
			err = errLoop
			continue
		}
		if b, err = dialUDPBackend(e, addr, cfg.UDPTimeout); err != nil {
			continue
		}
		if !s.socket.engine.resolver.own.reached(registry.UDP, b.conn.LocalAddr().(*net.UDPAddr).AddrPort(), addr) {
			return b, nil
		}
		b.conn.Close()
		err = errOwnListener
	}
	return nil, err
}

// handOver sends what waited, in order, and then makes b the session's backend. When it cannot,
// because the endpoint refuses or the session has ended, all of it goes on waiting: what b had been
// sent before it refused was what it refused.
func (s *session) handOver(b *udpBackend) error {
	for sent := 0; ; sent++ {
		s.mu.Lock()
		switch {
		case s.ended:
			s.mu.Unlock()
			return context.Canceled
		case sent == len(s.waiting):
			s.socket.engine.sessions.unreserve(s.waiting)
			s.backend, s.waiting = b, nil
			s.mu.Unlock()
			return nil
		}
		next := s.waiting[sent]
		s.keepLocked(next)
		s.mu.Unlock()
		if err := s.send(b, next); err != nil {
			return err
		}
	}
}
