package portable

import (
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// How a session ends, and who is told. Anybody may end one, by stop, and the first reason counts; its own
// goroutine then finishes it. Of the reasons that there are, a session ends with
//
//	Idle                neither side has spoken for Config.UDPTimeout
//	Evicted             another client needed the room more; see SessionLimit
//	ServiceRemoved      the service left the port, or another took it over
//	SourceNotAllowed    the source ranges of the service changed, and the client lies outside
//	EndpointRemoved     its endpoint left the service, and there is no other
//	DialFailed, NameFailed, OwnListener, EndpointNotAllowed, Loop, DescriptorLimit, NoEndpoints
//	                    no endpoint could be had: to begin with, or after the one it had refused
//	Shutdown
//
// A newcomer who is refused a session has none that could end: see begin.

// stop ends the session. Its goroutine finishes soon after. It is safe to repeat.
func (s *session) stop(why traffic.Reason) {
	s.mu.Lock()
	s.endLocked(why)
	s.mu.Unlock()
	s.socket.forget(s)
	s.socket.engine.Sessions.Remove(&s.Entry)
}

// Evict ends the session for the sake of another one.
func (s *session) Evict() {
	s.stop(traffic.Evicted)
	if v := glog.V(2); v {
		v.Infof("evicted the UDP session of %v for %s", s.key.Client, s.claim.Key)
	}
}

func (s *session) endLocked(why traffic.Reason) {
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
		s.why = traffic.DropEnded
	}
	s.stop(s.whyUnserved())
	s.mu.Lock()
	waiting := s.waiting
	s.mu.Unlock()
	e.Sessions.Unreserve(waiting)
	if n := len(waiting); n > 0 {
		s.drop(s.why, n)
	}
	e.Budget.Release(1)
	e.Sessions.Existing.Add(-1)
	s.tell()
	s.socket.returned(s)
	close(s.done)
}

// whyUnserved is why a session ends for which no endpoint was found, if nobody has said otherwise.
func (s *session) whyUnserved() traffic.Reason {
	if s.why == traffic.DropEnded { // most often by stop, and this does not count; or its socket was closed just now
		why, _ := s.socket.ends(s)
		return why
	}
	return engine.Unserved(s.why, s.endpoint != nil)
}

// tell counts the session as ended, and tells whoever wants to know.
func (s *session) tell() {
	ending := traffic.Ending{
		Protocol: registry.UDP,
		Service:  s.claim.Key,
		Port:     s.socket.port,
		Client:   s.key.Client,
		Began:    s.began,
		Duration: time.Since(s.began),
		Dialled:  s.dialled,
		Attempts: s.attempts,
		Sent:     s.sent.Load(),
		Received: s.received,
		Reason:   s.reason,
	}
	if s.endpoint != nil {
		ending.Endpoint = s.endpoint.Addr
	}
	engine.TellSession(s.claim, ending, s.socket.engine.Cfg.Ended)
}
