package epoll

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/registry"
)

// Searches are what the searches for endpoints of a loop share, those of connections and those of UDP sessions: how many
// attempts a turn has room for, which searches wait for a later turn, look-ups of names, and the guard against endpoints
// that are the proxy itself.
type searches struct {
	engine     *engine.Base
	turn       *reactor.Turn
	requests   *reactor.Requests
	deferred   []reactor.Token // of those that go on in a later turn
	attempts   int             // made for such in a turn
	attemptsOf uint64          // that turn
}

// attemptsATurn is how many attempts a loop makes in one turn for clients whose first has failed or stays silent. An
// attempt that fails at once takes 10 us, so a turn spends less than 0.1 ms on failures, however many clients
// look for an endpoint. The first attempt of a client is bounded by acceptsAtOnce and fewSessions.
const attemptsATurn = 8

// mayAttempt reports whether this turn has room for one more such attempt, and counts it.
func (s *searches) mayAttempt() bool {
	if s.areUsedUp() {
		return false
	}
	if s.attemptsOf != s.turn.Number {
		s.attemptsOf, s.attempts = s.turn.Number, 0
	}
	s.attempts++
	return true
}

// areUsedUp reports whether this turn has no room for such attempts.
func (s *searches) areUsedUp() bool {
	return s.attemptsOf == s.turn.Number && s.attempts == attemptsATurn
}

// postpone lets a search go on in a later turn.
func (s *searches) postpone(t reactor.Token) { s.deferred = append(s.deferred, t) }

// due yields the searches that go on in this turn, those that have waited longest first.
func (s *searches) due(yield func(reactor.Token) bool) {
	n := 0
	for more := true; more && n < len(s.deferred) && !s.areUsedUp(); n++ {
		more = yield(s.deferred[n])
	}
	s.deferred = slices.Delete(s.deferred, 0, n)
}

// lookUp waits for the name of an endpoint beside the loop, for so long at most, and then has the loop call found with its
// addresses.
func (s *searches) lookUp(protocol registry.Protocol, of *balance.Endpoint, patience time.Duration, found func([]netip.AddrPort, error)) {
	s.engine.Work.Go(func() {
		ctx, cancel := context.WithTimeout(s.engine.Ctx, patience)
		defer cancel()
		addrs, err := s.engine.Resolver.Resolve(ctx, protocol, of.Addr)
		s.requests.Do(func() { found(addrs, err) })
	})
}

// suspect looks whether a socket that was connected to an endpoint has reached who it was meant for, and not
// itself or a listener of ours: see connect of package portable.
func (s *searches) suspect(protocol registry.Protocol, fd int, to netip.AddrPort) error {
	local := socket.LocalName(fd)
	switch {
	case local == to:
		return admit.ErrReachedItself
	case s.engine.Resolver.Own.Reached(protocol, local, to):
		return admit.ErrOwnListener
	}
	return nil
}
