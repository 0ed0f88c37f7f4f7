package registry

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"time"
)

// Terms are what a service asks for its clients, beside its ports and endpoints. A [Service], a claim of package engine and the state
// file hold them as one struct, so a new term needs no change on its way from the record to the engine.
type Terms struct {
	Affinity        Affinity
	AffinityTimeout time.Duration // how long a client is remembered after its last new connection; 0 with AffinityNone

	// Who may connect; empty means any client. Each range is masked, no IPv4 range is in its IPv6 spelling, and they are sorted
	// without repeats.
	SourceRanges []netip.Prefix

	Balance Balance // which endpoint a new client gets
	Checks  Check   // of endpoints while no client comes
}

// Equal reports whether two services ask for the same.
func (t *Terms) Equal(u *Terms) bool {
	return t.Affinity == u.Affinity && t.AffinityTimeout == u.AffinityTimeout && slices.Equal(t.SourceRanges, u.SourceRanges) &&
		t.Balance == u.Balance && t.Checks == u.Checks
}

// Check reports an error if no record gives these terms.
func (t *Terms) Check() error {
	switch {
	case t.Affinity > AffinityClientIP || (t.Affinity == AffinityNone) != (t.AffinityTimeout == 0) || t.AffinityTimeout < 0:
		return errors.New("bad affinity")
	case !slices.IsSortedFunc(t.SourceRanges, netip.Prefix.Compare) ||
		slices.ContainsFunc(t.SourceRanges, func(p netip.Prefix) bool { return !p.IsValid() || p != p.Masked() }):
		return errors.New("bad source ranges")
	case t.Balance > SourceAddress:
		return errors.New("bad algorithm")
	case !t.Checks.isValid():
		return errors.New("bad check")
	}
	return nil
}

// Allows reports whether a client may connect.
func (t *Terms) Allows(client netip.Addr) bool {
	return len(t.SourceRanges) == 0 || Within(t.SourceRanges, client)
}

// annotationsThatCount are the annotations of a Service that set terms. Records hold many others, which are not decoded.
var annotationsThatCount = [...]string{sourceRangesAnnotation, balanceAnnotation,
	checkAnnotation, checkHTTPAnnotation, checkIntervalAnnotation, checkTimeoutAnnotation, checkUDPAnnotation}

// setTerms sets the terms of a service as its record says. A value that can be ignored without harm causes a warning.
func (spec *serviceSpec) setTerms(t *Terms) ([]Warning, error) {
	warnings := spec.setAffinity(t)
	return warnings, cmp.Or(spec.setSourceRanges(t), spec.setBalance(t), spec.setCheck(t))
}
