package reactor

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/registry"
)

// Searches are what the searches for endpoints of a loop share, those of connections and those of UDP sessions. They say how many attempts
// a turn has room for, and which searches go on in a later turn. They belong to the loop's goroutine.
type Searches struct {
	Engine     *engine.Base
	Turn       *Turn
	Requests   *Requests
	deferred   []Token // of those that go on in a later turn
	attempts   int     // made for such in a turn
	attemptsOf uint64  // that turn
}

// AttemptsATurn is how many attempts a loop makes in one turn for clients whose first has failed or stays silent. An
// attempt that fails at once takes 10 us, so a turn spends less than 0.1 ms on failures, however many clients
// look for an endpoint. The first attempt of a client is bounded by how many clients and
// sessions a turn begins with.
const AttemptsATurn = 8

// MayAttempt reports whether this turn has room for one more such attempt, and counts it.
func (s *Searches) MayAttempt() bool {
	if s.areUsedUp() {
		return false
	}
	if s.attemptsOf != s.Turn.Number {
		s.attemptsOf, s.attempts = s.Turn.Number, 0
	}
	s.attempts++
	return true
}

// areUsedUp reports whether this turn has no room for such attempts.
func (s *Searches) areUsedUp() bool {
	return s.attemptsOf == s.Turn.Number && s.attempts == AttemptsATurn
}

// Postpone lets a search go on in a later turn.
func (s *Searches) Postpone(t Token) { s.deferred = append(s.deferred, t) }

// Waiting returns how many searches wait for a later turn.
func (s *Searches) Waiting() int { return len(s.deferred) }

// Due yields the searches that go on in this turn, those that have waited longest first.
func (s *Searches) Due(yield func(Token) bool) {
	n := 0
	for more := true; more && n < len(s.deferred) && !s.areUsedUp(); n++ {
		more = yield(s.deferred[n])
	}
	s.deferred = slices.Delete(s.deferred, 0, n)
}

// LookUp waits for the name of an endpoint beside the loop, for so long at most, and then has the loop call found with its
// addresses.
func (s *Searches) LookUp(protocol registry.Protocol, of *rotation.Endpoint, timeout time.Duration, found func([]netip.AddrPort, error)) {
	s.Engine.Work.Go(func() {
		ctx, cancel := context.WithTimeout(s.Engine.Ctx, timeout)
		defer cancel()
		addrs, err := s.Engine.Resolver.Resolve(ctx, protocol, of.Addr)
		s.Requests.Do(func() { found(addrs, err) })
	})
}

// Suspect looks whether a socket that was connected to an endpoint has reached who it was meant for, and not
// itself or a listener of ours: see connect of package portable.
func (s *Searches) Suspect(protocol registry.Protocol, fd int, to netip.AddrPort) error {
	local := socket.LocalName(fd)
	switch {
	case local == to:
		return admit.ErrReachedItself
	case s.Engine.Resolver.Own.Reached(protocol, local, to):
		return admit.ErrOwnListener
	}
	return nil
}
