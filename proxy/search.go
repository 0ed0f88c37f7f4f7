package proxy

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"kubeproxy/registry"
)

// A search finds an endpoint for one TCP client, attempt by attempt: next says which to try and how
// long, and the attempt ends by answered, missed or abandoned. It opens nothing and waits for nothing; that is for
// the engine.
type search struct {
	choice         choice
	attempt, total time.Duration
	maxDials       int64

	deadline time.Time
	left     int // endpoints that were not offered yet
	failed   []failure
}

// A failure is an endpoint that a client was not given, and why.
type failure struct {
	endpoint *endpoint
	err      error
}

// errDialLimit is what an endpoint gets that is being dialled as often as it may be.
var errDialLimit = errors.New("too many dials are under way")

// next returns the endpoint to try now and how long that may take, or false when none is left or
// the time is up. An endpoint that is being dialled for as many clients as may be is passed over as if it
// were not there: it may be slow or well, and says so soon.
func (s *search) next() (e *endpoint, patience time.Duration, ok bool) {
	for s.left > 0 {
		if patience, ok = s.share(time.Until(s.deadline)); !ok {
			break
		}
		if e, ok = s.choice.next(); !ok {
			break
		}
		s.left--
		if e.dialing.Add(1) <= s.maxDials {
			return e, patience, true
		}
		e.dialing.Add(-1)
		s.failed = append(s.failed, failure{e, errDialLimit})
	}
	return nil, 0, false
}

// share is how long the next attempt may take when so much of the total is left for the endpoints
// that are left: an attempt's own time, but never more than half of what is left while there are
// others to try. It is not ok to begin when little would be left to succeed in.
func (s *search) share(remaining time.Duration) (patience time.Duration, ok bool) {
	if s.left > 1 {
		remaining /= 2
	}
	patience = min(s.attempt, remaining)
	return patience, patience >= min(s.attempt, s.total)/8
}

// answered ends an attempt, and the search.
func (s *search) answered(e *endpoint) {
	e.dialing.Add(-1)
	e.answered(registry.TCP)
	s.choice.reached(e)
}

// abandoned ends an attempt for which nobody waits any more. The endpoint is not to blame.
func (s *search) abandoned(e *endpoint, err error) {
	e.dialing.Add(-1)
	s.failed = append(s.failed, failure{e, err})
}

// outrun ends an attempt because another one was faster.
func (s *search) outrun(e *endpoint) { e.dialing.Add(-1) }

// missed ends an attempt that failed within the time that it was given. It tells whether to go on.
func (s *search) missed(e *endpoint, patience time.Duration, err error) (goOn bool) {
	s.abandoned(e, err)
	switch (failure{e, err}).reason() {
	case DescriptorLimit: // the next endpoint would fare no better
		return false
	case OwnListener, EndpointNotAllowed: // the record is wrong, and not for how long it takes
	default:
		if isTimeout(err) && patience < s.attempt/2 { // silence as short as that proves nothing
			e.failures.Add(1)
		} else {
			s.choice.failed(e)
		}
	}
	return true
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
	case isShortage(f.err):
		return DescriptorLimit
	}
	return DialFailed
}

// whyNone tells why a search came to nothing: of its failures, the one that says most.
func whyNone(failed []failure) Reason {
	for _, why := range []Reason{DescriptorLimit, DialFailed, DialLimit, EndpointNotAllowed, OwnListener} {
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
