package registry

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Terms are what a service asks for its clients, beside its ports and endpoints. A [Service], a claim of package engine and the state
// file hold them as one struct, so a new term needs no change on its way from the record to the engine.
type Terms struct {
	Affinity    Affinity
	Balance     Balance     // which endpoint a new client gets
	ProxyHeader ProxyHeader // that endpoints get before what the client says

	AffinityTimeout time.Duration // how long a client is remembered after its last new connection; 0 with AffinityNone

	// Who may connect; empty means any client. Each range is masked, no IPv4 range is in its IPv6 spelling, and they are sorted
	// without repeats.
	SourceRanges []netip.Prefix

	Checks Check // of endpoints while no client comes
}

// NoTerms are the terms of a service that asks for nothing, as most do. They are never changed.
var NoTerms = new(Terms)

// Equal reports whether two services ask for the same.
func (t *Terms) Equal(u *Terms) bool {
	return t.Affinity == u.Affinity && t.AffinityTimeout == u.AffinityTimeout && slices.Equal(t.SourceRanges, u.SourceRanges) &&
		t.Balance == u.Balance && t.Checks == u.Checks && t.ProxyHeader == u.ProxyHeader
}

// Check reports an error if no record gives these terms.
func (t *Terms) Check() error {
	switch {
	case t.Affinity >= endOfAffinities || (t.Affinity == AffinityNone) != (t.AffinityTimeout == 0) || t.AffinityTimeout < 0:
		return errors.New("bad affinity")
	case !slices.IsSortedFunc(t.SourceRanges, netip.Prefix.Compare) ||
		slices.ContainsFunc(t.SourceRanges, func(p netip.Prefix) bool { return !p.IsValid() || p != p.Masked() }):
		return errors.New("bad source ranges")
	case t.Balance >= endOfBalances:
		return errors.New("bad algorithm")
	case !t.Checks.isValid():
		return errors.New("bad check")
	case t.ProxyHeader >= endOfProxyHeaders:
		return errors.New("bad version of the PROXY protocol")
	}
	return nil
}

// Allows reports whether a client may connect.
func (t *Terms) Allows(client netip.Addr) bool {
	return len(t.SourceRanges) == 0 || Within(t.SourceRanges, client)
}

// setAffinity sets whether clients return to their endpoint, and for how long. An unusable value causes a warning, and the default
// holds: no client loses a connection by that.
func (w *Wishes) setAffinity(t *Terms) []Warning {
	switch w.Affinity {
	case "ClientIP":
	case "", "None":
		return nil
	default:
		return []Warning{Warning("unknown session affinity " + Quote(w.Affinity) + " is taken for None")}
	}
	t.Affinity, t.AffinityTimeout = AffinityClientIP, defaultAffinityTimeout
	seconds := w.AffinityTimeout
	switch {
	case seconds == nil:
	case *seconds < 1 || *seconds > int64(maxAffinityTimeout/time.Second):
		return []Warning{Warning(fmt.Sprintf("session affinity timeout of %d seconds is not between 1 and %d; it is taken for %d",
			*seconds, maxAffinityTimeout/time.Second, defaultAffinityTimeout/time.Second))}
	default:
		t.AffinityTimeout = time.Duration(*seconds) * time.Second
	}
	return nil
}

// setBalance sets the algorithm. An unknown one is an error: clients that need source would lose their state at any other.
func (w *Wishes) setBalance(t *Terms) (err error) {
	if name, ok := w.Annotations[balanceAnnotation]; ok {
		t.Balance, err = ParseBalance(name)
	}
	return inAnnotation(balanceAnnotation, err)
}

// inAnnotation names the annotation that an error is about.
func inAnnotation(name string, err error) error {
	if err != nil {
		return fmt.Errorf("annotation %s: %w", name, err)
	}
	return nil
}

// setCheck sets how endpoints are checked. What asks for a kind of check asks for checks, unless the record says false.
func (w *Wishes) setCheck(t *Terms) error {
	for _, a := range [...]struct {
		name string
		read func(*Check, string) error
	}{
		{checkAnnotation, (*Check).readWish},
		{checkHTTPAnnotation, (*Check).readHTTP},
		{checkIntervalAnnotation, func(c *Check, s string) (err error) {
			c.Interval, err = checkTime(s, MinCheckInterval)
			return err
		}},
		{checkTimeoutAnnotation, func(c *Check, s string) (err error) {
			c.Timeout, err = checkTime(s, minCheckTimeout)
			return err
		}},
		{checkUDPAnnotation, (*Check).readUDP},
	} {
		if value, ok := w.Annotations[a.name]; ok {
			if err := a.read(&t.Checks, value); err != nil {
				return inAnnotation(a.name, err)
			}
		}
	}
	if c := &t.Checks; c.Wanted == CheckUnsaid && (c.Path != "" || c.Send != "") {
		c.Wanted = CheckOn
	}
	return nil
}

// setSourceRanges sets who may connect: by the list in the spec, or else by the annotation that came before the list, ranges separated
// by commas. A list that cannot be read whole is an error: the rest of it would refuse the wrong clients, or none.
func (w *Wishes) setSourceRanges(t *Terms) error {
	listed, in := w.SourceRanges, SourceRangesField
	if annotation := w.Annotations[sourceRangesAnnotation]; len(listed) == 0 && strings.TrimSpace(annotation) != "" {
		listed, in = strings.Split(annotation, ","), "annotation "+sourceRangesAnnotation
	}
	switch {
	case len(listed) == 0:
		return nil
	case len(listed) > MaxSourceRanges:
		return fmt.Errorf("%s lists %d ranges, more than %d", in, len(listed), MaxSourceRanges)
	}
	ranges := make([]netip.Prefix, 0, len(listed))
	for _, text := range listed {
		r, err := parseRange(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("%s holds %s: %w", in, Quote(text), err)
		}
		ranges = append(ranges, r)
	}
	slices.SortFunc(ranges, netip.Prefix.Compare)
	t.SourceRanges = slices.Compact(ranges)
	return nil
}

// setProxyHeader sets the header that endpoints get. An unknown version is an error: an endpoint that waits for a header refuses every
// client without one. Version 1 has no form for datagrams, so UDP ports send none.
func (w *Wishes) setProxyHeader(t *Terms, ports []Port) ([]Warning, error) {
	value, ok := w.Annotations[sendProxyAnnotation]
	if !ok {
		return nil, nil
	}
	switch value {
	case "proxy", "proxy-v1":
		t.ProxyHeader = ProxyV1
	case "proxy-v2":
		t.ProxyHeader = ProxyV2
	default:
		return nil, inAnnotation(sendProxyAnnotation, fmt.Errorf("unknown version %s: want proxy, proxy-v1 or proxy-v2", Quote(value)))
	}
	if t.ProxyHeader == ProxyV1 && slices.ContainsFunc(ports, func(p Port) bool { return p.Protocol == UDP }) {
		return []Warning{Warning("annotation " + sendProxyAnnotation + ": only proxy-v2 has a form for datagrams, so UDP ports send no header")}, nil
	}
	return nil, nil
}

// Wishes are the terms of a service as its record spells them, before they are checked.
type Wishes struct {
	Affinity        string
	AffinityTimeout *int64            // in seconds; nil: the record does not say
	SourceRanges    []string          // of addresses that may connect, by the list in the spec
	Annotations     map[string]string // those of [ServiceAnnotations] that the record has
}

// Terms returns the terms of a service with these ports. A value that can be ignored without harm causes a warning.
func (w *Wishes) Terms(ports []Port) (t Terms, _ []Warning, _ error) {
	warnings := w.setAffinity(&t)
	more, err := w.setProxyHeader(&t, ports)
	return t, append(warnings, more...), cmp.Or(w.setSourceRanges(&t), w.setBalance(&t), w.setCheck(&t), err)
}
