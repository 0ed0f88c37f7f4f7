package proxy

import (
	"errors"
	"time"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// How a session ends, and who is told. Anybody may end one, by stop, and the first reason counts; its own
// goroutine then finishes it. Of the reasons that there are, a session ends with
//
//	Idle                neither side has spoken for Config.UDPTimeout
//	Evicted             another client needed the room more; see sessionLimit
//	ServiceRemoved      the service left the port, or another took it over
//	SourceNotAllowed    the source ranges of the service changed, and the client lies outside
//	EndpointRemoved     its endpoint left the service, and there is no other
//	DialFailed, NameFailed, OwnListener, EndpointNotAllowed, Loop, DescriptorLimit, NoEndpoints
//	                    no endpoint could be had: to begin with, or after the one it had refused
//	Shutdown
//
// A newcomer who is refused a session has none that could end: see begin.

// stop ends the session. Its goroutine finishes soon after. It is safe to repeat.
func (s *session) stop(why Reason) {
	s.mu.Lock()
	s.endLocked(why)
	s.mu.Unlock()
	s.socket.forget(s)
	s.socket.engine.sessions.remove(&s.place)
}

// evict ends the session for the sake of another one.
func (s *session) evict() {
	s.stop(Evicted)
	if v := glog.V(2); v {
		v.Infof("evicted the UDP session of %v for %s", s.key.client, s.claim.key)
	}
}

func (s *session) endLocked(why Reason) {
	if !s.ended {
		s.ended, s.reason = true, why
	}
	s.cancel()
	if s.backend != nil {
		s.leaveLocked()
	}
}

// finish gives back what the session held, and tells of its end.
func (s *session) finish() {
	e := s.socket.engine
	if s.ctx.Err() != nil {
		s.why = dropEnded
	}
	s.stop(s.whyUnserved())
	s.mu.Lock()
	waiting := s.waiting
	s.mu.Unlock()
	e.sessions.unreserve(waiting)
	if n := len(waiting); n > 0 {
		s.drop(s.why, n)
	}
	e.budget.release(1)
	e.sessions.existing.Add(-1)
	s.tell()
	s.socket.returned(s)
	close(s.done)
}

// whyUnserved is why a session ends for which no endpoint was found, if nobody has said otherwise.
func (s *session) whyUnserved() Reason {
	if s.why == dropEnded { // most often by stop, and this does not count; or its socket was closed just now
		why, _ := s.socket.ends(s)
		return why
	}
	return unserved(s.why, s.endpoint != nil)
}

// whyUnusable is why a session cannot have an endpoint, from the error that it met with. When we are out of
// descriptors, or of local ports, that is not the endpoint's fault, and the next would fare no better; when
// the record is wrong, that is not for how long it takes.
func whyUnusable(err error) DropReason {
	switch {
	case isShortage(err), isOurTrouble(err):
		return dropDescriptorLimit
	case errors.Is(err, errOwnListener):
		return dropOwnListener
	case errors.Is(err, errNotAllowed):
		return dropNotAllowed
	case errors.Is(err, errLoop):
		return dropLoop
	case errors.Is(err, errNoDescriptors):
		return dropDescriptorLimit
	case errors.Is(err, errUnresolved):
		return dropUnresolved
	}
	return dropUnreachable
}

// unserved is why a session ends for which no endpoint was found, from what was wrong with those that were
// tried, and whether one had carried it before.
func unserved(why DropReason, carried bool) Reason {
	switch why {
	case dropOwnListener:
		return OwnListener
	case dropNotAllowed:
		return EndpointNotAllowed
	case dropLoop:
		return Loop
	case dropUnreachable:
		return DialFailed
	case dropUnresolved:
		return NameFailed
	case dropDescriptorLimit:
		return DescriptorLimit
	}
	if carried {
		return EndpointRemoved
	}
	return NoEndpoints
}

// tell counts the session as ended, and tells whoever wants to know.
func (s *session) tell() {
	ending := Ending{
		Protocol: registry.UDP,
		Service:  s.claim.key,
		Port:     s.socket.port,
		Client:   s.key.client,
		Began:    s.began,
		Duration: time.Since(s.began),
		Dialled:  s.dialled,
		Attempts: s.attempts,
		Sent:     s.sent.Load(),
		Received: s.received,
		Reason:   s.reason,
	}
	if s.endpoint != nil {
		ending.Endpoint = s.endpoint.addr
	}
	tellSession(s.claim, ending, s.socket.engine.cfg.Ended)
}

// tellSession counts a session, which began under a claim, as ended, and tells whoever wants to know.
func tellSession(c *claim, e Ending, told func(Ending)) {
	if v := glog.V(4); v {
		v.Infof("UDP session of %v for %s ended: %d bytes sent, %d received; %s", e.Client, e.Service, e.Sent, e.Received, e.Reason)
	}
	c.tally.end(e.Reason)
	if told != nil {
		told(e)
	}
}
