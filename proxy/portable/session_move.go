package portable

import (
	"bytes"
	"context"
	"net"
	"time"

	"github.com/golang/glog"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
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
		b.endpoint.Failed(registry.UDP)
	}
	why, lost := traffic.DropUnreachable, false
	s.mu.Lock()
	switch {
	case s.backend == b:
		b.refused = true
		s.leaveLocked()
		if s.unanswered {
			lost = !s.kept || !s.waitLocked(s.last)
		}
	case s.ended:
		why, lost = traffic.DropEnded, true
	}
	s.mu.Unlock()
	if v := glog.V(3); v {
		v.Infof("%s: UDP client %v has to leave %v: %v", s.claim.Key, s.key.Client, b.endpoint.Addr, err)
	}
	if lost {
		s.drop(why, 1)
	}
}

// keepLocked remembers the datagram that is being sent, if it is short: a copy of some hundred bytes
// buys that no answer is lost with an endpoint.
func (s *session) keepLocked(datagram []byte) {
	s.unanswered, s.kept = true, len(datagram) <= engine.MaxKept
	if s.kept {
		s.last = append(s.last[:0], datagram...)
	}
}

// waitLocked puts a copy of a datagram aside until there is an endpoint; false: no room for it.
func (s *session) waitLocked(datagram []byte) bool {
	if len(s.waiting) >= engine.MaxWaiting || !s.socket.engine.Sessions.Reserve(datagram) {
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
	s.why = traffic.DropUnreachable
	settled := b.answered || monotonic.Now()-b.began > engine.SettleTime
	if settled || b.endpoint.Gone() {
		s.choice, s.why = s.claim.Choose(s.key.Client.Addr()), traffic.DropNoEndpoints
		s.until = monotonic.Now() + s.socket.engine.Cfg.DialTotalTimeout
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.refused && !settled { // then it was only tried
		s.endpoint = s.previous
		s.claim.Tally.DialFailures.Add(1)
	}
}

// move connects to the next endpoint that can be; false: there is none in time, or the session has ended.
func (s *session) move(b **udpBackend) bool {
	for s.ctx.Err() == nil {
		e, ok := s.choice.Next()
		if !ok || s.choice.Offers > 1 && monotonic.Now() >= s.until {
			return false
		}
		if e.Gone() {
			continue
		}
		if *b = s.try(e); *b != nil {
			return true
		}
	}
	return false
}

// try makes e the endpoint of the session, if it can be connected to; nil: it cannot.
func (s *session) try(e *balance.Endpoint) *udpBackend {
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
	switch s.why = engine.WhyUnusable(err); s.why {
	case traffic.DropDescriptorLimit:
		return nil
	case traffic.DropOwnListener, traffic.DropNotAllowed, traffic.DropLoop:
		s.socket.engine.Lines.ReportUnusable(s.claim.Key, e, err)
		if s.why != traffic.DropLoop { // which says something about this client only
			s.choice.Unusable(e)
		}
	case traffic.DropUnresolved:
		s.choice.Unusable(e)
	default:
		s.attempts++
		s.claim.Tally.DialFailures.Add(1)
		s.choice.Failed(e)
	}
	if v := glog.V(3); v {
		v.Infof("%s: UDP client %v cannot have %v: %v", s.claim.Key, s.key.Client, e.Addr, err)
	}
	return nil
}

// reached notes that e is the endpoint of the session now, unless it refuses.
func (s *session) reached(e *balance.Endpoint) {
	s.attempts++
	switch s.endpoint {
	case nil:
		s.dialled = time.Since(s.began)
	case e:
	default:
		s.claim.Tally.Moved.Add(1)
	}
	s.previous, s.endpoint = s.endpoint, e
	s.choice.Reached(e)
	e.Given()
	if v := glog.V(3); v {
		v.Infof("%s: UDP %v → %v", s.claim.Key, s.key.Client, e.Addr)
	}
}

// dial opens a socket connected to e. With a host name it may take as long as a look-up takes.
func (s *session) dial(e *balance.Endpoint) (*udpBackend, error) {
	cfg := &s.socket.engine.Cfg
	ctx, cancel := context.WithTimeout(s.ctx, engine.LookUpPatience(&s.choice))
	defer cancel()
	addrs, err := s.socket.engine.Resolver.Resolve(ctx, registry.UDP, e.Addr)
	if err != nil {
		return nil, err
	}
	var b *udpBackend
	for _, addr := range addrs {
		if s.key.Loops(addr, s.socket.port) {
			err = admit.ErrLoop
			continue
		}
		if b, err = dialUDPBackend(e, addr, cfg.UDPTimeout); err != nil {
			continue
		}
		if !s.socket.engine.Resolver.Own.Reached(registry.UDP, b.conn.LocalAddr().(*net.UDPAddr).AddrPort(), addr) {
			return b, nil
		}
		b.conn.Close()
		err = admit.ErrOwnListener
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
			s.socket.engine.Sessions.Unreserve(s.waiting)
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
