package tcp

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A search says which endpoint a TCP client tries next, and what an attempt that has ended says of its endpoint: next begins an
// attempt, and each attempt ends by answered, after which the endpoint is given the client, or by outrun, missed or [rotation.Endpoint.EndDial]. When an attempt begins is up to [Race].
//
// So a dead endpoint costs a client a quarter of a second, and not DialTimeout (RFC 8305 has browsers
// do the same), and those who come after nothing, since from then on it is ejected.
type search struct {
	choice         rotation.Choice
	attempt, total time.Duration
	maxDials       int64

	deadline time.Duration
	over     bool // there is none left to try
	limited  bool // one has as many dials as it may
	short    bool // the last attempt lacked descriptors, memory or the like
	failed   []Failure
}

// newSearch begins a search: attempt bounds one attempt, total all of them, and maxDials those under way to one endpoint
// on behalf of all clients.
func newSearch(c rotation.Choice, attempt, total time.Duration, maxDials int64, now time.Duration) search {
	return search{choice: c, attempt: attempt, total: total, maxDials: maxDials, deadline: now + total}
}

// A Failure is an endpoint that a client was not given, and why.
type Failure struct {
	Endpoint *rotation.Endpoint
	Err      error
}

// How many failures a line tells of, and how many bytes of an error.
const (
	maxTold    = 4
	maxToldErr = 120
)

// Tell says in one line which endpoints a client was not given, and why: the first few of them.
func Tell(failed []Failure) string {
	var b strings.Builder
	for i, f := range failed {
		if i == maxTold {
			fmt.Fprintf(&b, " and %d more", len(failed)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		why := f.Err.Error()
		if len(why) > maxToldErr {
			why = strings.ToValidUTF8(why[:maxToldErr], "") + "…"
		}
		fmt.Fprintf(&b, "%s (%s)", registry.Label(f.Endpoint.Addr.String()), why)
	}
	return b.String()
}

// next returns the endpoint to try now, and how long that may take: false when none is left, or too
// little time to succeed in. An endpoint that is being dialled for as many clients as may be is passed
// over as if it were not there: it may be slow or well, and says so soon. So is one that others have filled in this moment.
func (s *search) next(now time.Duration) (e *rotation.Endpoint, timeout time.Duration, ok bool) {
	for !s.over {
		timeout = min(s.attempt, s.deadline-now)
		if e, ok = s.choice.Next(); !ok || timeout < s.enough()/4 {
			break
		}
		switch err := e.BeginDial(s.maxDials); err {
		case nil:
			return e, timeout, true
		case rotation.ErrFull:
			s.choice.Withdraw(e)
		default:
			s.failed, s.limited = append(s.failed, Failure{e, err}), true
		}
	}
	s.over = true
	return nil, 0, false
}

// isUnserved reports whether the search has ended without an endpoint, though the service has its port still, and may have one later.
func (s *search) isUnserved() bool {
	return s.over && s.mayWait() && !s.choice.Lifetime.IsOver()
}

// mayWait reports whether a client may be offered an endpoint later: it was offered none, or one that was full, or is being elected.
func (s *search) mayWait() bool { return s.limited || s.choice.MayWait() }

// beginAgain has the search look once more, and the client has all its time for what is found.
func (s *search) beginAgain(now time.Duration) {
	s.choice.LookAgain(s.limited)
	s.failed = slices.DeleteFunc(s.failed, func(f Failure) bool { return f.Err == rotation.ErrDialLimit })
	s.over, s.limited, s.deadline = false, false, now+s.total
}

// enough is how long an endpoint must have been silent for that to be held against it, if no other
// has answered meanwhile.
func (s *search) enough() time.Duration { return min(s.attempt, s.total) / 2 }

// answered ends an attempt, and the search.
func (s *search) answered(e *rotation.Endpoint) {
	e.Answered(registry.TCP)
	s.choice.Reached(e)
}

// outrun ends an attempt, whose first address was dialled so long ago, because another endpoint has answered.
func (s *search) outrun(e *rotation.Endpoint, ago time.Duration) {
	e.EndDial()
	if ago >= engine.Stagger {
		s.failed = append(s.failed, Failure{e, errSilent})
		s.choice.Failed(e)
	}
}

// outrunByName ends an attempt whose name has been looked up for so long, because another endpoint has answered. The
// next clients do not wait for that name, either.
func (s *search) outrunByName(e *rotation.Endpoint, ago time.Duration) {
	e.EndDial()
	if ago >= engine.Stagger {
		s.choice.Unusable(e, traffic.NameFailed)
	}
}

// errSilent is what an endpoint gets that was silent while another answered.
var errSilent = errors.New("silent, and another endpoint answered")

// missed ends an attempt that failed after so long.
func (s *search) missed(e *rotation.Endpoint, after time.Duration, err error) {
	e.EndDial()
	s.failed = append(s.failed, Failure{e, err})
	switch why := (Failure{e, err}).reason(); {
	case sockopt.LacksResources(err): // the next endpoint would fare no better
		s.over, s.short = true, true
	case why == traffic.OwnListener, why == traffic.EndpointNotAllowed, why == traffic.NameFailed: // the record or DNS is wrong, and not the endpoint
		s.choice.Unusable(e, why)
	default: // an endpoint towards which no local port is left included: to look for one takes long, and the others have theirs
		if isTimeout(err) && after < s.enough() {
			e.Missed()
		} else {
			s.choice.Failed(e)
		}
	}
}

// reason is the failure in one word.
func (f Failure) reason() traffic.Reason {
	switch {
	case errors.Is(f.Err, admit.ErrOwnListener):
		return traffic.OwnListener
	case errors.Is(f.Err, registry.ErrNotAllowed):
		return traffic.EndpointNotAllowed
	case f.Err == rotation.ErrDialLimit:
		return traffic.DialLimit
	case sockopt.LacksResources(f.Err), f.lacksLocalPort(), errors.Is(f.Err, admit.ErrNoDescriptors):
		return traffic.DescriptorLimit
	case errors.Is(f.Err, admit.ErrUnresolved):
		return traffic.NameFailed
	}
	return traffic.DialFailed
}

// lacksLocalPort reports whether all local ports were taken, of those that there are towards one address. (Of
// IPv6 the error may as well mean that this machine has no address to come from.)
func (f Failure) lacksLocalPort() bool {
	return errors.Is(f.Err, syscall.EADDRNOTAVAIL) && f.Endpoint.Addr.IP.Addr().Is4()
}

// WhyNone returns why a search came to nothing: of its failures, the one that says most.
func WhyNone(failed []Failure) traffic.Reason {
	for _, why := range []traffic.Reason{traffic.DescriptorLimit, traffic.DialFailed, traffic.DialLimit, traffic.NameFailed, traffic.EndpointNotAllowed, traffic.OwnListener} {
		if slices.ContainsFunc(failed, func(f Failure) bool { return f.reason() == why }) {
			return why
		}
	}
	return traffic.NoEndpoints
}

// isTimeout reports whether an attempt ended because its time was up.
func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}
