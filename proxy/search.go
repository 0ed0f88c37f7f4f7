package proxy

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"kubeproxy/registry"
)

// A search finds an endpoint for one TCP client, attempt by attempt: next says which to try, and each
// attempt ends by answered, outrun, missed or abandoned. It opens nothing and waits for nothing; that
// is for the engine, and the engine keeps to this order:
//
//	begin with the endpoint whose turn it is
//	when it refuses, try the next one at once
//	while it is silent, try another beside it every 250 ms; the first that answers has the client
//
// So a dead endpoint costs a client a quarter of a second, and not DialTimeout (RFC 8305 has browsers
// do the same), and those who come after nothing, since from then on it is passed over.
type search struct {
	choice         choice
	attempt, total time.Duration
	maxDials       int64

	deadline time.Time
	over     bool // there is none left to try
	failed   []failure
}

func newSearch(c choice, attempt, total time.Duration, maxDials int64) search {
	return search{choice: c, attempt: attempt, total: total, maxDials: maxDials, deadline: time.Now().Add(total)}
}

// stagger is how long an endpoint may be silent before another is tried beside it.
const stagger = 250 * time.Millisecond

// A failure is an endpoint that a client was not given, and why.
type failure struct {
	endpoint *endpoint
	err      error
}

// errDialLimit is what an endpoint gets that is being dialled as often as it may be.
var errDialLimit = errors.New("too many dials are under way")

// next returns the endpoint to try now, and how long that may take: false when none is left, or too
// little time to succeed in. An endpoint that is being dialled for as many clients as may be is passed
// over as if it were not there: it may be slow or well, and says so soon.
func (s *search) next() (e *endpoint, patience time.Duration, ok bool) {
	for !s.over {
		patience = min(s.attempt, time.Until(s.deadline))
		if e, ok = s.choice.next(); !ok || patience < s.enough()/4 {
			break
		}
		if e.experience().dialing.Add(1) <= s.maxDials {
			return e, patience, true
		}
		e.experience().dialing.Add(-1)
		s.failed = append(s.failed, failure{e, errDialLimit})
	}
	s.over = true
	return nil, 0, false
}

// enough is how long an endpoint must have been silent for that to be held against it, if no other
// has answered meanwhile.
func (s *search) enough() time.Duration { return min(s.attempt, s.total) / 2 }

// answered ends an attempt, and the search.
func (s *search) answered(e *endpoint) {
	e.experience().dialing.Add(-1)
	e.answered(registry.TCP)
	s.choice.reached(e)
}

// abandoned ends an attempt for which nobody waits any more. The endpoint is not to blame.
func (s *search) abandoned(e *endpoint, err error) {
	e.experience().dialing.Add(-1)
	s.failed = append(s.failed, failure{e, err})
}

// outrun ends an attempt, begun so long ago, because another endpoint has answered.
func (s *search) outrun(e *endpoint, ago time.Duration) {
	if ago < stagger {
		e.experience().dialing.Add(-1)
		return
	}
	s.abandoned(e, errSilent)
	s.choice.failed(e)
}

// outrunByName ends an attempt whose name has been looked up for so long, because another endpoint has answered. The
// next clients do not wait for that name, either.
func (s *search) outrunByName(e *endpoint, ago time.Duration) {
	e.experience().dialing.Add(-1)
	if ago >= stagger {
		s.choice.unusable(e)
	}
}

// errSilent is what an endpoint gets that was silent while another answered.
var errSilent = errors.New("silent, and another endpoint answered")

// missed ends an attempt that failed after so long.
func (s *search) missed(e *endpoint, after time.Duration, err error) {
	s.abandoned(e, err)
	switch why := (failure{e, err}).reason(); {
	case isShortage(err): // the next endpoint would fare no better
		s.over = true
	case why == OwnListener, why == EndpointNotAllowed, why == NameFailed: // the record or DNS is wrong, and not the endpoint
		s.choice.unusable(e)
	default: // an endpoint towards which no local port is left included: to look for one takes long, and the others have theirs
		if isTimeout(err) && after < s.enough() {
			e.experience().failures.Add(1)
		} else {
			s.choice.failed(e)
		}
	}
}

// reason is the failure in one word.
func (f failure) reason() Reason {
	switch {
	case errors.Is(f.err, errOwnListener):
		return OwnListener
	case errors.Is(f.err, errNotAllowed):
		return EndpointNotAllowed
	case f.err == errDialLimit:
		return DialLimit
	case isShortage(f.err), f.lacksLocalPort(), errors.Is(f.err, errNoDescriptors):
		return DescriptorLimit
	case errors.Is(f.err, errUnresolved):
		return NameFailed
	}
	return DialFailed
}

// lacksLocalPort tells whether all local ports were taken, of those that there are towards one address. (Of
// IPv6 the error may as well mean that this machine has no address to come from.)
func (f failure) lacksLocalPort() bool {
	return errors.Is(f.err, syscall.EADDRNOTAVAIL) && f.endpoint.addr.IP.Addr().Is4()
}

// whyNone returns why the search came to nothing: the service left its port meanwhile, or what its failures say.
func (s *search) whyNone() Reason {
	if s.choice.tenure.isOver() {
		return ServiceRemoved
	}
	return whyNone(s.failed)
}

// whyNone returns why a search came to nothing: of its failures, the one that says most.
func whyNone(failed []failure) Reason {
	for _, why := range []Reason{DescriptorLimit, DialFailed, DialLimit, NameFailed, EndpointNotAllowed, OwnListener} {
		if slices.ContainsFunc(failed, func(f failure) bool { return f.reason() == why }) {
			return why
		}
	}
	return NoEndpoints
}

// isShortage tells whether it was our own descriptors, or the system's, that there were none left of.
func isShortage(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
