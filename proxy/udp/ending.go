package udp

import (
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// How a UDP session ends. The first reason counts:
//
//	Idle                neither side has spoken for as long as its service allows: see [Port.Silence]
//	Answered            the client was given all replies that its service expects
//	Evicted             another client needed the room more; see admit.SessionLimit
//	ServiceRemoved      the service left the port, or another took it over
//	SourceNotAllowed    the source ranges of the service changed, and the client lies outside
//	EndpointRemoved     its endpoint left the service, and there is no other
//	DialFailed, NameFailed, OwnListener, EndpointNotAllowed, Loop, DescriptorLimit, NoEndpoints, ZeroWeight, NoLocalEndpoint, AllFailed, EndpointLimit
//	                    no endpoint could be had: to begin with, or after the one it had refused
//	Shutdown            the process stops: the session was silent for DrainSilence, or the drain was over
//
// A newcomer who is refused a session has none that could end: see Port.MayBegin.

// IsIdle reports whether the session has been silent for too long, and is to be ended; if not, how long it may be silent yet.
// While an endpoint is being found it is not idle: the client has spoken, and the search has limits of its own. What has waited meanwhile is
// spoken when the endpoint is sent it.
func (s *Session) IsIdle() (rest time.Duration, idle bool) {
	rest = s.port.Silence()
	if s.at != nil {
		rest -= s.SilentFor()
	}
	return rest, rest <= 0
}

// EndIdle ends the session, unless it has ended, because it is idle.
func (s *Session) EndIdle() {
	if s.port.IsDraining() {
		s.End(traffic.Shutdown)
	} else {
		s.End(traffic.Idle)
	}
}

// End ends the session, unless it has ended. What waits is dropped by Finish.
func (s *Session) End(why traffic.Reason) {
	if s.ended {
		return
	}
	s.end(why, traffic.DropEnded)
	if v := glog.V(1); v && why == traffic.Idle {
		v.Infof("UDP session of %v for %s was silent for %v", s.Key.Client, s.Claim.Key, s.port.Silence())
	}
	if v := glog.V(2); v && why == traffic.Evicted {
		v.Infof("evicted the UDP session of %v for %s", s.Key.Client, s.Claim.Key)
	}
}

// GiveUp ends the session, unless it has ended, because Next has no endpoint for it.
func (s *Session) GiveUp() {
	if s.ended {
		return
	}
	if s.why == traffic.DropNoEndpoints {
		s.why = dropFor(s.Claim.Rotation.WhyNone(registry.UDP, s.Claim.Terms))
	}
	s.end(s.unserved(), s.why)
}

func (s *Session) end(why traffic.Reason, lost traffic.DropReason) {
	s.ended, s.reason, s.lost, s.at = true, why, lost, nil
}

// Ended reports whether the session has ended.
func (s *Session) Ended() bool { return s.ended }

// withoutEndpoint has the reasons for which a client is given no endpoint, and those for which its datagrams are dropped then.
var withoutEndpoint = [...]struct {
	drop traffic.DropReason
	why  traffic.Reason
	none bool // there was none to be tried
}{
	{traffic.DropNoEndpoints, traffic.NoEndpoints, true},
	{traffic.DropZeroWeight, traffic.ZeroWeight, true},
	{traffic.DropNoLocalEndpoint, traffic.NoLocalEndpoint, true},
	{traffic.DropAllFailed, traffic.AllFailed, true},
	{traffic.DropEndpointLimit, traffic.EndpointLimit, true},
	{traffic.DropOwnListener, traffic.OwnListener, false},
	{traffic.DropNotAllowed, traffic.EndpointNotAllowed, false},
	{traffic.DropLoop, traffic.Loop, false},
	{traffic.DropUnreachable, traffic.DialFailed, false},
	{traffic.DropUnresolved, traffic.NameFailed, false},
	{traffic.DropDescriptorLimit, traffic.DescriptorLimit, false},
}

// dropFor returns why the datagrams of a client are dropped that is given no endpoint.
func dropFor(why traffic.Reason) traffic.DropReason {
	for _, r := range withoutEndpoint {
		if r.why == why {
			return r.drop
		}
	}
	return traffic.DropNoEndpoints
}

// unserved returns why a session ends for which no endpoint was found.
func (s *Session) unserved() traffic.Reason {
	for _, r := range withoutEndpoint {
		switch {
		case r.drop != s.why:
		case r.none && s.carried != nil:
			return traffic.EndpointRemoved
		default:
			return r.why
		}
	}
	return traffic.NoEndpoints
}

// Finish gives back what a session held that has ended, drops what waited, and reports the end. It is the last
// that happens to the session, after Departed from its last endpoint.
func (s *Session) Finish() {
	c := s.port.base
	c.Sessions.Remove(&s.Entry)
	c.Sessions.Unreserve(s.waiting)
	if n := len(s.waiting); n > 0 {
		s.Drop(s.lost, n)
	}
	s.waiting = nil // a look-up that is under way has a reference to the session
	c.Budget.Release(1)
	c.Sessions.Existing.Add(-1)
	s.part()
	s.giveBack()
	e := s.ending()
	if v := glog.V(4); v {
		v.Infof("UDP session of %v for %s ended: %d bytes sent, %d received; %s", e.Client, e.Service, e.Sent, e.Received, e.Reason)
	}
	s.Claim.Tally.End(e.Reason)
	if c.Cfg.Ended != nil {
		c.Cfg.Ended(e)
	}
}

func (s *Session) ending() traffic.Ending {
	e := traffic.Ending{
		Listener: s.listener(),
		Service:  s.Claim.Key,
		Client:   s.Key.Client,
		Began:    s.began,
		Duration: time.Since(s.began),
		Dialled:  s.dialled,
		Attempts: s.attempts,
		Sent:     s.sent.Load(),
		Received: s.received.Load(),
		Reason:   s.reason,
	}
	if s.carried != nil {
		e.Endpoint = s.carried.Addr
	}
	if s.local != nil {
		e.Local = *s.local
	}
	return e
}
