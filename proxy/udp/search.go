package udp

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/golang/glog"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// How a UDP session finds an endpoint, at first and after it has left one. The engine asks Next which endpoint to try, and
// connects to it. Then it calls HandOver and Reached, or else Cannot, and asks again. When Next offers none, and Awaits has nothing to wait for, it
// calls GiveUp.

// Next returns the endpoint to try now; false: there is none in time.
func (s *Session) Next(now time.Duration) (*rotation.Endpoint, bool) {
	if s.waited { // attempts have all their time, however long the client has waited
		s.waited, s.until = false, now+s.port.base.Cfg.DialTotalTimeout
	}
	for !s.over {
		e := s.again
		if s.again = nil; e == nil || e.Gone() {
			var ok bool
			if e, ok = s.choice.Next(); !ok || s.choice.Offers() > 1 && now >= s.until {
				return nil, false
			}
		}
		switch {
		case e.Gone():
		case e.BeginDial(math.MaxInt64) == nil:
			s.trying = e
			return e, true
		default:
			s.choice.Withdraw(e)
		}
	}
	return nil, false
}

// Awaits returns a context that ends when a session which was offered no endpoint is to ask Next again, where its service has clients wait for one;
// false: the session does not wait, or has waited for long enough. A session that waits does so by the terms that its service has now.
func (s *Session) Awaits() (_ context.Context, cancel context.CancelFunc, ok bool) {
	if s.over || !s.choice.MayWait() || s.Claim.Lifetime.IsOver() {
		return nil, nil, false
	}
	owner := s.port.Owner.Load()
	if owner != s.chosenBy && owner.Rotation == s.Claim.Rotation { // a session of another service is about to end
		s.choose(owner)
		s.choice.LookAgain(s.why != traffic.DropNoEndpoints) // what has failed is offered once it is well
	}
	now := monotonic.Now()
	until := s.lookingSince + s.choice.Wait
	if now >= until {
		return nil, nil, false
	}
	news := s.choice.News()
	if e, ok := s.choice.Next(); ok || s.port.Owner.Load() != owner { // it came before the news could be heard
		s.again, until = e, now
	}
	ctx, cancel := context.WithTimeout(news, min(until, s.choice.Returns())-now)
	s.waited = true
	return ctx, cancel, true
}

// IsRetry reports whether Next would offer another endpoint after one that would not do.
func (s *Session) IsRetry() bool { return !s.over && s.choice.Offers() > 0 }

// LookUpTimeout returns how long the session waits for the name of the endpoint that it was offered. While others are left,
// it tries the next one as soon as TCP would.
func (s *Session) LookUpTimeout() time.Duration {
	if s.choice.IsLast() {
		return admit.LookUpTimeout
	}
	return engine.Stagger
}

// Arrange returns the addresses of an endpoint that was offered, in the order in which they are to be tried.
func (s *Session) Arrange(e *rotation.Endpoint, addrs []netip.AddrPort) []netip.AddrPort {
	order := s.choice.Arrange(e, addrs)
	if e == s.doubted {
		untried := slices.DeleteFunc(slices.Clone(order), func(a netip.AddrPort) bool { return slices.Contains(s.tried, a) })
		if len(untried) > 0 {
			order = untried
		}
	}
	s.tried = order
	return order
}

// doubt has an endpoint offered once more of whose addresses none would do, if its name may stand for others by now. The look-up of the
// name is waited for then.
func (s *Session) doubt(e *rotation.Endpoint, tried []netip.AddrPort) {
	if e != s.doubted && s.port.base.Resolver.Doubt(registry.UDP, e.Addr, tried) {
		s.again, s.doubted, s.tried = e, e, tried
	}
}

// Cannot notes why an endpoint that was offered cannot be the session's.
func (s *Session) Cannot(e *rotation.Endpoint, err error) {
	if v := glog.V(3); v {
		v.Infof("%s: UDP client %v cannot have %v: %v", s.Claim.Key, s.Key.Client, e.Addr, err)
	}
	s.giveBack()
	switch s.why = whyUnusable(err); s.why {
	case traffic.DropDescriptorLimit:
		s.over = true // the next endpoint would fare no better
	case traffic.DropOwnListener, traffic.DropNotAllowed:
		s.port.base.Lines.ReportUnusable(s.Claim.Key, e, err)
		s.choice.Unusable(e, s.unserved())
	case traffic.DropLoop: // which says something about this client only
		s.port.base.Lines.ReportUnusable(s.Claim.Key, e, err)
	case traffic.DropUnresolved:
		s.choice.Unusable(e, s.unserved())
	default:
		s.attempts++
		s.Claim.Tally.DialFailures.Add(1)
		s.choice.Failed(e)
		s.doubt(e, s.tried)
	}
}

// whyUnusable is why a session cannot have an endpoint, from the error that it met with. When we are out of
// descriptors, memory or local ports, that is not the endpoint's fault; when the record is wrong, that is not for how long it takes.
func whyUnusable(err error) traffic.DropReason {
	switch {
	case sockopt.LacksResources(err), sockopt.IsOurTrouble(err):
		return traffic.DropDescriptorLimit
	case errors.Is(err, admit.ErrOwnListener):
		return traffic.DropOwnListener
	case errors.Is(err, registry.ErrNotAllowed):
		return traffic.DropNotAllowed
	case errors.Is(err, admit.ErrLoop):
		return traffic.DropLoop
	case errors.Is(err, admit.ErrNoDescriptors):
		return traffic.DropDescriptorLimit
	case errors.Is(err, admit.ErrUnresolved):
		return traffic.DropUnresolved
	}
	return traffic.DropUnreachable
}

// Reached notes that a visit has begun: its endpoint carries the session, unless it refuses.
func (s *Session) Reached(v *Visit) {
	e := v.Endpoint
	s.attempts++
	first := s.carried == nil
	switch s.carried {
	case nil:
		s.dialled = time.Since(s.began)
	case e:
	default:
		s.Claim.Tally.Moved.Add(1)
	}
	s.previous, s.carried, s.trying = s.carried, e, nil
	s.choice.Reached(e)
	e.Given()
	if v := glog.V(3); v {
		v.Infof("%s: UDP %v → %v", s.Claim.Key, s.Key.Client, e.Addr)
	}
	if began := s.port.base.Cfg.Began; began != nil && first {
		began(s.ending())
	}
}

// GoesFrom notes the proxy's own address towards the endpoint, before Reached does the endpoint.
func (s *Session) GoesFrom(local netip.AddrPort) { s.local = &local }

// Departed notes that the socket of a visit was closed, and decides whether the session may be offered endpoints anew. It may
// unless this one refused before it was reached. Then it goes on with those that it was not offered yet, so that when all refuse it
// comes to an end. A session that has ended is offered none: it would take another client's turn.
func (s *Session) Departed(v *Visit, now time.Duration) {
	s.settle(v)
	v.Endpoint.Left(false)
	v.name.Release()
	settled := v.answered || now-v.Began > SettleTime
	if v.refused && !settled { // then it was only tried
		s.carried = s.previous
	}
	if s.ended {
		return
	}
	s.why = traffic.DropUnreachable
	if settled || !v.refused || v.Endpoint.Gone() {
		s.choose(s.Claim)
		s.why = traffic.DropNoEndpoints
		s.lookingSince, s.until = now, now+s.port.base.Cfg.DialTotalTimeout
		s.doubted = s.again
	}
}
