package tcp

import (
	"cmp"
	"math"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/traffic"
)

// How connections pass to another process, as far as engines do it alike: package handover says what a message holds.

// Export returns what a successor needs of the connection, but for what its engine holds: bytes, and the way to the end.
func (c *Connection) Export() handover.TCP {
	r := handover.TCP{
		Service: c.Claim.Key, Port: c.port, At: c.Claim.ID.Addr, Client: c.client,
		Age: c.age(), Dialled: c.dialled, Attempts: uint64(c.attempts),
		ServiceGone: c.Claim.Lifetime.Ago(), Removal: c.Claim.Removal,
	}
	if c.Endpoint != nil {
		r.Endpoint, r.EndpointGone = c.Endpoint.Addr, c.Endpoint.PresentLifetime().Ago()
	}
	if r.AwaitsHeader = c.awaitsHeader; c.others != nil {
		r.Via, r.Goal, r.TLVs, r.Introduced = c.others.via, c.others.goal, c.others.tlvs, c.others.introduced
	}
	return r
}

// Adopt counts a connection of a predecessor, whatever the limits say.
func Adopt(base *engine.Base, r *handover.TCP, at engine.Place) Connection {
	base.Connections.Add(1)
	at.Claim.Tally.Active.Add(1)
	if at.Endpoint != nil {
		at.Endpoint.Joined()
	}
	c := Connection{
		base: base, Claim: at.Claim, port: r.Port, client: r.Client, began: monotonic.Now() - r.Age, awaitsHeader: r.AwaitsHeader,
		dialled: r.Dialled, attempts: uint16(r.Attempts), Endpoint: at.Endpoint,
	}
	if r.Via.IsValid() || r.Introduced > 0 {
		c.others = &addresses{via: r.Via, goal: r.Goal, tlvs: r.TLVs, introduced: r.Introduced}
	}
	if !c.awaitsHeader && base.Cfg.PerClientOf(at.Claim.Terms) > 0 {
		c.perClient = at.Claim.Tally.Clients.Join(c.client.Addr(), math.MaxInt)
	}
	return c
}

// Forget ends a connection here that goes on in another process: it is no longer counted, and has no ending.
func (c *Connection) Forget() {
	c.base.Connections.Add(-1)
	c.Claim.Tally.Active.Add(-1)
	c.part()
	if c.Endpoint != nil {
		c.leave()
	}
}

// Export returns how far the connection has come on the way to its end.
func (t *Teardown) Export(now time.Duration) handover.Teardown {
	r := handover.Teardown{Client: t.sides[ClientSide].export(), Backend: t.sides[BackendSide].export(), Delivered: t.delivered}
	if t.reason > 0 {
		r.Reason = traffic.Reason(t.reason - 1).String()
	}
	if t.until > 0 {
		r.Timed, r.TimeLeft = true, t.until-now
	}
	return r
}

func (s *sideState) export() handover.SideEnd {
	return handover.SideEnd{Finished: s.hasFinished(), FIN: s.end == saidFIN, Broken: s.broken, SawEPIPE: s.sawEPIPE(), Doubtful: s.epipe == doubtful}
}

// AdoptTeardown returns the teardown that Export has described. A reason that this release does not know is none.
func AdoptTeardown(r *handover.Teardown, now time.Duration) Teardown {
	t := Teardown{sides: [2]sideState{ClientSide: adoptSide(r.Client), BackendSide: adoptSide(r.Backend)}, delivered: r.Delivered}
	if why, ok := traffic.ParseReason(r.Reason); ok {
		t.reason = uint8(why) + 1
	}
	if r.Timed {
		t.until = cmp.Or(now+r.TimeLeft, 1) // 0 would say that it was never asked
	}
	return t
}

func adoptSide(r handover.SideEnd) sideState {
	s := sideState{broken: r.Broken}
	switch {
	case r.Doubtful:
		s.epipe = doubtful
	case r.SawEPIPE:
		s.epipe = hadFIN
	}
	switch {
	case r.FIN:
		s.end = saidFIN
	case r.Finished:
		s.end = brokeOff
	}
	return s
}
