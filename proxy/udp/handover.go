package udp

import (
	"bytes"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// How sessions pass to another process, as far as engines do it alike: package handover says what a message holds.

// Export returns what a successor needs of the session. Its slices are the session's.
func (s *Session) Export(now time.Duration) handover.UDP {
	r := handover.UDP{
		Service: s.Claim.Key, Port: s.port.Number, At: s.Claim.ID.Addr, Client: s.Key.Client, Local: s.Key.Local,
		Age: time.Since(s.began), Dialled: s.dialled, Attempts: uint64(s.attempts), Waiting: s.waiting, Talk: s.talk(),
		SaysHeader: true, Header: s.header,
	}
	if s.carried != nil {
		r.Endpoint = s.carried.Addr
	}
	if s.previous != nil {
		r.Previous = s.previous.Addr
	}
	if v := s.at; v != nil {
		r.Visit = handover.Visit{IsOn: true, Age: now - v.Began, Answered: v.answered, Refused: v.refused}
	} else {
		r.Searching = now - s.lookingSince
	}
	return r
}

// Rest returns what a successor needs of a session that it was lent as what: what can have changed since.
func (s *Session) Rest(what uint64) handover.UDPRest {
	return handover.UDPRest{Lent: what, Answered: s.at.answered, Refused: s.at.refused, Talk: s.talk()}
}

func (s *Session) talk() handover.Talk {
	var lost uint32
	if s.at != nil {
		lost = s.at.lost
	}
	return handover.Talk{
		Lost:   lost,
		Silent: s.SilentFor(), Sent: s.sent.Load(), Received: s.received.Load(), Answered: s.answered, Confirmed: s.confirmed,
		Unanswered: s.unanswered, Kept: s.kept, Last: s.last, Requests: uint64(s.requests), Replies: uint64(s.replies),
	}
}

// Lost returns how many datagrams the kernel had no room for, as far as they were counted.
func (p *Port) Lost() uint32 { return p.lost }

// AdoptLost has those not counted again.
func (p *Port) AdoptLost(lost uint32) { p.lost = lost }

// AdoptLost has those of a visit not counted again, as far as a predecessor does not say how many it has counted.
func (v *Visit) AdoptLost(lost uint32) { v.lost = lost }

// Adopt makes s the session that r describes, whatever the limits say. If it is with an endpoint, the visit goes on at v; else v is
// nil, and an endpoint is to be found; v has nothing but To. self is s as the limits know it, and has to be a pointer. The descriptor is the caller's to pay.
func (p *Port) Adopt(s *Session, self interface{ Evict() }, r *handover.UDP, at engine.Place, v *Visit) {
	c, now := p.base, monotonic.Now()
	s.port, s.Claim, s.began = p, at.Claim, time.Now().Add(-r.Age)
	s.Key.Client, s.Key.Local = r.Client, r.Local
	s.Control = sockopt.ControlFrom(r.Local)
	if s.header = bytes.Clone(r.Header); !r.SaysHeader { // what the record says now is for new sessions
		s.setHeader()
	}
	s.Entry.Tally, s.Entry.Session = at.Claim.Tally, self
	c.Sessions.Adopt(&s.Entry, c.Cfg.UDPTimeoutOf(at.Claim.Terms), r.Silent, r.Confirmed)
	c.Sessions.Existing.Add(1)
	at.Claim.Tally.Active.Add(1)
	s.join(true)
	s.attempts, s.dialled = int(r.Attempts), r.Dialled
	s.goOn(&r.Talk)
	s.carried, s.previous = at.Endpoint, at.Previous
	for _, datagram := range r.Waiting {
		if !s.hold(datagram) {
			s.Drop(traffic.DropWaiting, 1)
		}
	}
	if r.Searching == 0 && at.Endpoint == nil { // an earlier release does not say it
		r.Searching = r.Age
	}
	s.lookingSince, s.until = now-r.Searching, now+c.Cfg.DialTotalTimeout
	if v == nil {
		s.choose(at.Claim)
		return
	}
	v.goOn(&r.Talk)
	v.Endpoint, v.Began, v.answered, v.refused = at.Endpoint, now-r.Visit.Age, r.Visit.Answered, r.Visit.Refused
	v.name = c.Resolver.Hold(at.Endpoint.Addr.Host, v.To.Addr())
	s.at = v
	s.chosenBy = at.Claim
	s.choice = at.Claim.Rotation.ChooseAfter(at.Endpoint, registry.UDP, r.Client.Addr(), at.Claim.Terms, at.Claim.Lifetime)
	at.Endpoint.Joined()
}

// AdoptRest completes a session that was lent.
func (s *Session) AdoptRest(r *handover.UDPRest) {
	s.HeardAgo(r.Talk.Silent)
	if r.Talk.Confirmed && !s.confirmed {
		s.port.base.Sessions.Confirm(&s.Entry)
	}
	s.at.answered, s.at.refused = r.Answered, r.Refused
	s.at.goOn(&r.Talk)
	s.goOn(&r.Talk)
}

// goOn gives the session the state that it had in the predecessor.
func (s *Session) goOn(t *handover.Talk) {
	s.sent.Store(t.Sent)
	s.received.Store(t.Received)
	s.answered, s.confirmed = t.Answered, t.Confirmed
	s.requests = int(t.Requests)
	if s.uncounted = s.requests == 0; !s.uncounted { // else the service did not count, and what was not asked for is no answer
		s.replies = int(t.Replies)
	}
	s.unanswered, s.kept, s.last = t.Unanswered, t.Kept, append(s.last[:0], t.Last...)
}

// Forget ends a session here that goes on in another process: it is no longer counted, and has no ending.
func (s *Session) Forget() {
	c := s.port.base
	if s.at != nil {
		s.at.Endpoint.Left(false)
		s.at.name.Release()
	}
	s.giveBack()
	s.ended, s.at = true, nil
	c.Sessions.Remove(&s.Entry)
	c.Sessions.Unreserve(s.waiting)
	s.waiting = nil // a look-up that is under way has a reference to the session
	c.Sessions.Existing.Add(-1)
	c.Budget.Release(1)
	s.part()
	s.Claim.Tally.Active.Add(-1)
}
