package registry

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubeproxy/registry/patroni"
)

// A term is one annotation of a Service.
type term struct {
	name  string // after our prefix
	alias string // another name of it, the whole of it; "" for none
	read  func(*Terms, string) error
	show  func(*Terms) string // as a record spells it; "" where that does not say
}

// terms are all annotations of a Service that say one thing each, in the order of the manual. HAProxy's ingress controller has the aliases.
var terms = [...]term{
	{"load-balance", "haproxy.org/load-balance", (*Terms).readBalance, func(t *Terms) string { return t.Balance.String() }},
	{"send-proxy-protocol", "haproxy.org/send-proxy-protocol", (*Terms).readProxyHeader, func(t *Terms) string { return t.ProxyHeader.String() }},
	{"check", "haproxy.org/check", ofCheck((*Check).readWish), func(t *Terms) string { return t.Checks.Wanted.String() }},
	{"check-http", "haproxy.org/check-http", ofCheck((*Check).readHTTP), func(t *Terms) string { return t.Checks.Path }},
	{"check-interval", "haproxy.org/check-interval",
		aTime(func(t *Terms) *time.Duration { return &t.Checks.Interval }, MinCheckInterval, MaxCheckInterval), shownTime(func(t *Terms) time.Duration { return t.Checks.Interval })},
	{"check-timeout", "haproxy.org/timeout-check",
		aTime(func(t *Terms) *time.Duration { return &t.Checks.Timeout }, minCheckTimeout, MaxCheckInterval), shownTime(func(t *Terms) time.Duration { return t.Checks.Timeout })},
	{"check-fall", "", aNumber(func(t *Terms) *int { return &t.Checks.Fall }, maxInARow, false), shownCount(func(t *Terms) int { return t.Checks.Fall })},
	{"check-rise", "", aNumber(func(t *Terms) *int { return &t.Checks.Rise }, maxInARow, false), shownCount(func(t *Terms) int { return t.Checks.Rise })},
	{"on-failed-check", "", aChoice(func(t *Terms) *bool { return &t.Failure.Close }, "drain", "close"), shownChoice(func(t *Terms) bool { return t.Failure.Close }, "close")},
	{"all-failed", "", aChoice(func(t *Terms) *bool { return &t.Failure.Refuse }, "use", "refuse"), shownChoice(func(t *Terms) bool { return t.Failure.Refuse }, "refuse")},
	{"check-udp", "", ofCheck((*Check).readUDP), func(t *Terms) string { return t.Checks.showUDP() }},
	{"check-tls", "", ofCheck((*Check).readTLS), func(t *Terms) string { return t.Checks.TLS.String() }},
	{"check-port", "", ofCheck((*Check).readPort), func(t *Terms) string { return t.Checks.showPort() }},
	{"check-method", "", ofCheck((*Check).readMethod), func(t *Terms) string { return t.Checks.Method }},
	{"check-host", "", ofCheck((*Check).readHost), func(t *Terms) string { return t.Checks.Host }},
	{"check-status", "", ofCheck((*Check).readStatus), func(t *Terms) string { return t.Checks.Status.String() }},
	{"max-connections", "", aNumber(func(t *Terms) *int { return &t.Limits.Connections }, maxCount, false), shownCount(func(t *Terms) int { return t.Limits.Connections })},
	{"max-connections-per-client", "", aNumber(func(t *Terms) *int { return &t.Limits.PerClient }, maxCount, true), shownCount(func(t *Terms) int { return t.Limits.PerClient })},
	{"max-connections-per-endpoint", "", aNumber(func(t *Terms) *int { return &t.Limits.PerEndpoint }, maxCount, false), shownCount(func(t *Terms) int { return t.Limits.PerEndpoint })},
	{"connect-timeout", "",
		aTime(func(t *Terms) *time.Duration { return &t.Timeouts.Connect }, 10*time.Millisecond, time.Minute), shownTime(func(t *Terms) time.Duration { return t.Timeouts.Connect })},
	{"wait", "", aTime(func(t *Terms) *time.Duration { return &t.Timeouts.Wait }, 10*time.Millisecond, maxWait), shownTime(func(t *Terms) time.Duration { return t.Timeouts.Wait })},
	{"idle-timeout", "",
		orNone(func(t *Terms) *time.Duration { return &t.Timeouts.Idle }, MinIdleTimeout, maxSilence), shownTime(func(t *Terms) time.Duration { return t.Timeouts.Idle })},
	{"udp-timeout", "",
		aTime(func(t *Terms) *time.Duration { return &t.Timeouts.UDP }, 100*time.Millisecond, maxSilence), shownTime(func(t *Terms) time.Duration { return t.Timeouts.UDP })},
	{"udp-requests", "", aNumber(func(t *Terms) *int { return &t.Limits.Requests }, maxCount, false), shownCount(func(t *Terms) int { return t.Limits.Requests })},
	{"udp-replies", "", aNumber(func(t *Terms) *int { return &t.Limits.Replies }, maxCount, false), shownCount(func(t *Terms) int { return t.Limits.Replies })},
	{"keep-lapsed", "", aChoice(func(t *Terms) *bool { return &t.LetLapse }, "true", "false"), shownChoice(func(t *Terms) bool { return t.LetLapse }, "false")},
	{"holder-key", "", (*Terms).readHolderKey, (*Terms).showHolderKey},
	{"patroni", "", ofPatroni((*patroni.Terms).ReadScope), func(t *Terms) string { return t.Patroni.Scope }},
	{"patroni-role", "", aChoice(func(t *Terms) *bool { return &t.Patroni.Replicas }, "primary", "replica"), func(t *Terms) string { return t.Patroni.Role() }},
	{"patroni-lag", "", ofPatroni((*patroni.Terms).ReadLag), func(t *Terms) string { return t.Patroni.ShowLag() }},
	{"patroni-fallback", "", aChoice(func(t *Terms) *bool { return &t.Patroni.Alone }, "primary", none), shownChoice(func(t *Terms) bool { return t.Patroni.Alone }, none)},
	{"patroni-stale", "", aChoice(func(t *Terms) *bool { return &t.Patroni.Ask }, "keep", "ask"), shownChoice(func(t *Terms) bool { return t.Patroni.Ask }, "ask")},
	{"patroni-unpromoted", "", aChoice(func(t *Terms) *bool { return &t.Patroni.Unpromoted }, "serve", "ask"), shownChoice(func(t *Terms) bool { return t.Patroni.Unpromoted }, "ask")},
	{"on-removal", "", (*Terms).readRemoval, func(t *Terms) string { return t.Removal.String() }},
}

// Bounds of terms. Those of checks are beside [Check].
const (
	MinIdleTimeout = time.Second
	maxSilence     = 7 * 24 * time.Hour
	maxWait        = 30 * time.Second // clients of TCP give up a connection after some more
	maxCount       = 1_000_000_000
)

// none is the value of a term that says NoLimit.
const none = "none"

func ofCheck(read func(*Check, string) error) func(*Terms, string) error {
	return func(t *Terms, s string) error { return read(&t.Checks, s) }
}

func ofPatroni(read func(*patroni.Terms, string) error) func(*Terms, string) error {
	return func(t *Terms, s string) error {
		if err := read(&t.Patroni, s); err != nil {
			return fmt.Errorf("%s %w", Quote(s), err)
		}
		return nil
	}
}

// aTime reads a time from least to most into a field.
func aTime(field func(*Terms) *time.Duration, least, most time.Duration) func(*Terms, string) error {
	return func(t *Terms, s string) (err error) {
		*field(t), err = readTime(s, least, most)
		return err
	}
}

// orNone is aTime for a time that may also be none.
func orNone(field func(*Terms) *time.Duration, least, most time.Duration) func(*Terms, string) error {
	return func(t *Terms, s string) (err error) {
		if s == none {
			*field(t) = NoLimit
			return nil
		}
		if *field(t), err = readTime(s, least, most); err != nil {
			err = fmt.Errorf("%w, or none", err)
		}
		return err
	}
}

// readTime reads a time as HAProxy writes it, such as 500ms, 5s or 1m. A number alone is in milliseconds there, and refused here.
func readTime(s string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < least || d > most {
		return 0, fmt.Errorf("%s is no time from %v to %v, such as 5s", Quote(s), least, most)
	}
	return d, nil
}

// readHolderKey reads a key that is no record and no longer than one.
func (t *Terms) readHolderKey(s string) error {
	if most := len(EndpointSlicesPrefix) + 2*MaxName + 1; !strings.HasPrefix(s, "/") || strings.HasSuffix(s, "/") || strings.HasPrefix(s, Prefix) || len(s) > most {
		return fmt.Errorf("%s is no key outside of %s that begins with a slash, does not end with one and has at most %d bytes, such as /service/pg/leader", Quote(s), Prefix, most)
	}
	t.HolderKey = s
	return nil
}

// showHolderKey shows the key that the record names. That of a cluster of Patroni follows from the cluster.
func (t *Terms) showHolderKey() string {
	if t.Patroni.Scope != "" {
		return ""
	}
	return t.HolderKey
}

func (t *Terms) readRemoval(s string) (err error) {
	if t.Removal, err = ParseRemoval(s); err != nil {
		err = fmt.Errorf("%s: %w", Quote(s), err)
	}
	return err
}

func shownTime(of func(*Terms) time.Duration) func(*Terms) string {
	return func(t *Terms) string {
		switch d := of(t); d {
		case 0:
			return ""
		case NoLimit:
			return none
		default:
			return d.String()
		}
	}
}

// aChoice reads one of two words into a field: the second one is true.
func aChoice(field func(*Terms) *bool, no, yes string) func(*Terms, string) error {
	return func(t *Terms, s string) error {
		if s != no && s != yes {
			return fmt.Errorf("%s is neither %s nor %s", Quote(s), no, yes)
		}
		*field(t) = s == yes
		return nil
	}
}

func shownChoice(of func(*Terms) bool, yes string) func(*Terms) string {
	return func(t *Terms) string {
		if of(t) {
			return yes
		}
		return ""
	}
}

// aNumber reads a number from 1 to most into a field; with mayBeNone true, also none.
func aNumber(field func(*Terms) *int, most int, mayBeNone bool) func(*Terms, string) error {
	return func(t *Terms, s string) error {
		if mayBeNone && s == none {
			*field(t) = NoLimit
			return nil
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > most || s != strconv.Itoa(n) {
			err = fmt.Errorf("%s is no number from 1 to %d", Quote(s), most)
			if mayBeNone {
				err = fmt.Errorf("%w, or none", err)
			}
			return err
		}
		*field(t) = n
		return nil
	}
}

func shownCount(of func(*Terms) int) func(*Terms) string {
	return func(t *Terms) string {
		switch n := of(t); n {
		case 0:
			return ""
		case NoLimit:
			return none
		default:
			return strconv.Itoa(n)
		}
	}
}

// Wishes are the terms of a service as its record spells them, before they are checked.
type Wishes struct {
	Affinity        string
	AffinityTimeout *int64            // in seconds; nil: the record does not say
	SourceRanges    []string          // of addresses that may connect, by the list in the spec
	Annotations     map[string]string // those of [ServiceAnnotations] that the record has

	TrafficPolicy       string // of the ports that are offered: Cluster or Local
	Distribution        string
	HealthCheckNodePort int64
}

// Terms returns the terms of a service with these ports. A value that can be ignored without harm causes a warning.
func (w *Wishes) Terms(ports []Port) (t Terms, _ []Warning, _ error) {
	warnings := append(w.setAffinity(&t), w.setNearness(&t)...)
	err := cmp.Or(w.setSourceRanges(&t), w.readAnnotations(&t))
	if c := &t.Checks; c.Wanted == CheckUnsaid && (c.Path != "" || c.Send != "" || c.TLS != CheckPlain) {
		c.Wanted = CheckOn // what asks for a kind of check asks for checks, unless the record says false
	}
	if t.ProxyHeader == ProxyV1 && slices.ContainsFunc(ports, func(p Port) bool { return p.Protocol == UDP }) {
		name, _, _ := w.annotation("send-proxy-protocol")
		warnings = append(warnings, Warning("annotation "+name+": only proxy-v2 has a form for datagrams, so UDP ports send no header"))
	}
	return t, warnings, err
}

// readAnnotations reads all terms that the record has. A bad value is an error: whoever relies on a term loses less by the last good version of
// the record than by a default.
func (w *Wishes) readAnnotations(t *Terms) error {
	if len(w.Annotations) == 0 {
		return nil
	}
	for i := range terms {
		name, value, ok := w.annotation(terms[i].name)
		if !ok {
			continue
		}
		if alias := terms[i].alias; name != alias && alias != "" {
			if _, both := w.Annotations[alias]; both {
				return fmt.Errorf("annotations %s and %s are two names of one: leave one out", name, alias)
			}
		}
		if err := terms[i].read(t, value); err != nil {
			return inAnnotation(name, err)
		}
	}
	_, _, hasRole := w.annotation("patroni-role")
	return cmp.Or(t.Patroni.Problem(hasRole, t.HolderKey != ""), t.Checks.problem())
}

// annotation returns the value of a term, and the name that the record has for it.
func (w *Wishes) annotation(of string) (name, value string, ok bool) {
	i := slices.IndexFunc(terms[:], func(t term) bool { return t.name == of })
	for _, name := range [...]string{AnnotationPrefix + terms[i].name, terms[i].alias} {
		if value, ok := w.Annotations[name]; ok {
			return name, value, true
		}
	}
	return "", "", false
}

// inAnnotation names the annotation that an error is about.
func inAnnotation(name string, err error) error {
	if err != nil {
		return fmt.Errorf("annotation %s: %w", name, err)
	}
	return nil
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
