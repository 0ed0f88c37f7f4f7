package registry

import (
	"errors"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"kubeproxy/registry/patroni"
)

// Terms are what a service asks for its clients, beside its ports and endpoints. A [Service], a claim of package engine and the state
// file hold them as one struct, so a new term needs no change on its way from the record to the engine. Where a term is its zero value, the
// record does not say, and the flag of the node counts.
type Terms struct {
	Affinity    Affinity
	Balance     Balance     // which endpoint a new client gets
	ProxyHeader ProxyHeader // that endpoints get before what the client says

	AffinityTimeout time.Duration // how long a client is remembered after its last new connection; 0 with AffinityNone

	// Who may connect; empty means any client. Each range is masked, no IPv4 range is in its IPv6 spelling, and they are sorted
	// without repeats.
	SourceRanges []netip.Prefix

	Checks   Check    // of endpoints while no client comes
	Limits   Limits   `json:",omitzero"`
	Timeouts Timeouts `json:",omitzero"`
	Removal  Removal  `json:",omitzero"` // of an endpoint or the service: what becomes of TCP connections
	Failure  Failure  `json:",omitzero"` // of checks: what becomes of clients

	LetLapse bool `json:",omitzero"` // endpoints whose leases have ended are gone at once, though they be the last ones

	// The key of etcd whose value is the name of the endpoints that are in force, as the annotation kube-proxy/names gives them names; no others are. "": all are.
	// With Patroni it ends with a slash, and all keys below it say what the endpoints are.
	HolderKey string        `json:",omitzero"`
	Patroni   patroni.Terms `json:",omitzero"`

	Distribution    Distribution `json:",omitzero"` // which endpoints the clients of a node are given first
	Local           bool         `json:",omitzero"` // clients are given endpoints on the node only
	HealthCheckPort uint16       `json:",omitzero"` // where load balancers ask the node whether it has an endpoint, if Local; 0: nowhere
}

// Limits bound what clients have of each port of a service, on each node.
type Limits struct {
	Connections int `json:",omitzero"` // TCP connections, or UDP sessions
	PerClient   int `json:",omitzero"` // likewise, of one client address; NoLimit: as many as Connections allows
	PerEndpoint int `json:",omitzero"` // likewise, of one endpoint; 0: any number
	Requests    int `json:",omitzero"` // datagrams of a client in one UDP session; 0: any number
	Replies     int `json:",omitzero"` // datagrams of the endpoint for each of those; 0: any number
}

// A Failure says what becomes of clients when checks of endpoints fail.
type Failure struct {
	Close  bool `json:",omitzero"` // TCP connections of an endpoint that fails are closed, and do not go on
	Refuse bool `json:",omitzero"` // while all endpoints fail new clients are refused, and not given all of them
}

// Timeouts bound how long a client waits, and how long it may be silent.
type Timeouts struct {
	Connect time.Duration `json:",omitzero"` // for one endpoint to accept a TCP connection
	Idle    time.Duration `json:",omitzero"` // silence after which a TCP connection ends; NoLimit: it never does
	UDP     time.Duration `json:",omitzero"` // silence after which a UDP session ends
	Wait    time.Duration `json:",omitzero"` // of a client for which there is no endpoint, before it is refused; 0: none
}

// NoLimit is the value of a term that says that there is no limit, whatever the flag says.
const NoLimit = -1

// NoTerms are the terms of a service that asks for nothing, as most do. They are never changed.
var NoTerms = new(Terms)

// Equal reports whether two services ask for the same.
func (t *Terms) Equal(u *Terms) bool {
	return t.Affinity == u.Affinity && t.AffinityTimeout == u.AffinityTimeout && slices.Equal(t.SourceRanges, u.SourceRanges) &&
		t.Balance == u.Balance && t.Checks == u.Checks && t.ProxyHeader == u.ProxyHeader &&
		t.Limits == u.Limits && t.Timeouts == u.Timeouts && t.Removal == u.Removal && t.Failure == u.Failure && t.LetLapse == u.LetLapse && t.HolderKey == u.HolderKey && t.Patroni == u.Patroni &&
		t.Distribution == u.Distribution && t.Local == u.Local && t.HealthCheckPort == u.HealthCheckPort
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
	case t.Distribution >= endOfDistributions:
		return errors.New("bad distribution")
	}
	var same Terms
	for i := range terms {
		if said := terms[i].show(t); said != "" && terms[i].read(&same, said) != nil {
			return errors.New("bad " + terms[i].name)
		}
	}
	if is := t.Checks; same.Checks.Port != is.Port || same.Checks.Method != is.Method || same.Checks.Host != is.Host || same.Checks.Status != is.Status ||
		same.Checks.Fall != is.Fall || same.Checks.Rise != is.Rise || same.Failure != t.Failure || same.Limits != t.Limits || same.Timeouts != t.Timeouts || same.Removal != t.Removal || same.Patroni != t.Patroni {
		return errors.New("bad limits or times")
	}
	return nil
}

// Allows reports whether a client may connect.
func (t *Terms) Allows(client netip.Addr) bool {
	return len(t.SourceRanges) == 0 || Within(t.SourceRanges, client)
}

// Said yields the annotations that the record sets terms by, in the order of the manual, as it spells their values.
func (t *Terms) Said() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for i := range terms {
			if said := terms[i].show(t); said != "" && !yield(AnnotationPrefix+terms[i].name, said) {
				return
			}
		}
	}
}

// String gives these annotations in one line, without their prefix.
func (t *Terms) String() string {
	var all []string
	for name, value := range t.Said() {
		all = append(all, strings.TrimPrefix(name, AnnotationPrefix)+"="+Label(value))
	}
	return strings.Join(all, ", ")
}
