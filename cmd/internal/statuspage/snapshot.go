package statuspage

import (
	"context"
	"iter"
	"slices"
	"time"

	"kubeproxy/cmd/internal/history"
	"kubeproxy/cmd/internal/localhealth"
	"kubeproxy/cmd/internal/statuspage/advice"
	"kubeproxy/cmd/internal/statuspage/recent"
	"kubeproxy/config"
	"kubeproxy/proxy"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Node is what the page tells of. Its functions may be called at any time, by any goroutine.
type Node struct {
	Host    string // of the machine
	Version string // of the program

	Leaving  func() bool          // it was told to stop
	Stopping func() bool          // it was told to stop, and accepts no clients
	Live     func() error         // what keeps its work from getting done; nil: nothing
	Age      func() time.Duration // since what is served was last known to be what the sources hold
	MaxAge   time.Duration        // above which the node is not ready; 0: none
	Stale    func() bool          // what is served is from the state file
	Sources  []config.Source      // in their order of precedence
	Proxier  interface {
		Status() []proxy.PortStatus
		EachTotals() iter.Seq[traffic.Totals]
		Service(registry.Name) *registry.Service
		Limits() []traffic.Limit
		Clients(ctx context.Context, of traffic.Selection, end bool) iter.Seq2[[]traffic.Client, error]
		KernelStatus() *kernel.Status // nil: the kernel is to carry nothing
	}
	Balancer interface {
		RotationStatus() iter.Seq[rotation.Status]
		EndpointsOf(key registry.PortKey, most int) (first []rotation.EndpointStatus, n, next int)
		Algorithm(named registry.Balance) registry.Balance
		Overrides() []balance.Override
		OverrideOf(service registry.Name, addr registry.Addr) (o balance.Override, ok bool)
	}
	Endings *recent.Endings
	History *history.History
	Overdue func() checks.Overdue // of active checks

	ActionPath string // where forms are sent that act on the node; "": there are none

	UpgradeFailure func() (time.Time, error) // when the last upgrade failed, and why; nil, as a function or as an error: it has not
	RoutesMissing  func() error              // why the node does not answer for a range of addresses of services; nil: it does
	HealthPorts    func() []localhealth.Problem
}

// A snapshot is a node at one moment. It is not edited.
type snapshot struct {
	at   time.Time
	took time.Duration

	ports    []port // by protocol and number
	services int    // that own a port
	open     int    // ports
	sources  []source
	limits   []traffic.Limit
	problems []problem // the worst first
	listed   []problem // the same without those of services of which many have one, for all pages but that of a service

	overrides []balance.Override // of operators, that of the node first

	endpoints int
	active    int64 // connections and sessions
	recent.Rates
}

// A tally is what is counted together.
type tally struct {
	registry.PortKey
	registry.Protocol
}

// A port is one row of the first page.
type port struct {
	proxy.PortStatus
	label  string // of the owner; of the first who asks in vain
	active int64
	recent.Rates
	rotation rotation.Status

	key      string           // without endpoints: the key that elects them; "": none does
	unheld   bool             // nobody holds the key
	unserved bool             // no new client is given an endpoint, and clients came in vain lately
	refusals []advice.Refusal // lately
	refused  bool             // the newest record of the owner is not in force
	warned   bool             // a record of the owner is in force, with a warning
}

// A source is the status of one source under its name.
type source struct {
	Name string
	config.Status
}

// unserved are the reasons of clients for whom a service has no endpoint.
var unserved = []traffic.Reason{traffic.NoEndpoints, traffic.ZeroWeight, traffic.NoLocalEndpoint, traffic.AllFailed, traffic.EndpointNotAllowed}

// turnedAway notes why clients of a port were turned away lately.
func (r *port) turnedAway(refusals *recent.Refusals, now time.Time) {
	lately := func(code string) bool { return refusals.Lately(now, r.Owner, r.ID.Protocol, code) }
	for _, reason := range unserved {
		r.unserved = r.unserved || r.rotation.Condition.TurnsAway() && lately(reason.String())
	}
	for _, refusal := range advice.Refusals {
		if lately(refusal.Code) {
			r.refusals = append(r.refusals, refusal)
		}
	}
}

// troubledNames are the services with a record whose newest value is refused, and those with one that has a warning.
func (s *snapshot) troubledNames() (refused, warned map[registry.Name]bool) {
	refused, warned = make(map[registry.Name]bool), make(map[registry.Name]bool)
	for _, from := range s.sources {
		for _, r := range from.Rejections {
			if name, ok := serviceOfKey(r.Key); ok {
				refused[name] = true
			}
		}
		for _, w := range from.Warnings {
			if name, ok := serviceOfKey(w.Key); ok {
				warned[name] = true
			}
		}
	}
	return refused, warned
}

// addToHistoriesLocked adds a point to the history of each service with a viewer.
func (p *Page) addToHistoriesLocked(s *snapshot, read map[tally]recent.Counts) {
	p.histories.Expire(s.at)
	if len(p.histories) == 0 {
		return
	}
	sums := make(map[registry.Name]recent.Counts)
	for key, c := range read {
		if p.histories[key.Name] != nil {
			sums[key.Name] = sums[key.Name].Plus(c)
		}
	}
	for name, h := range p.histories {
		h.Add(s.at, sums[name])
	}
}

// label names one port of a service as "namespace/name:port", fit to be shown.
func label(k registry.PortKey) string {
	if k.Port == "" {
		return k.Name.Label()
	}
	return k.Name.Label() + ":" + registry.Label(k.Port)
}

// claims lists who owns a port and who waits for it.
func (r *port) claims() []registry.PortKey {
	if r.Refused {
		return r.Waiting
	}
	return append([]registry.PortKey{r.Owner}, r.Waiting...)
}

// of returns the ports that a service owns, waits for, or asks for in vain.
func (s *snapshot) of(name registry.Name) (ports []port) {
	for _, row := range s.ports {
		if !row.Refused && row.Owner.Name == name || slices.ContainsFunc(row.Waiting, func(k registry.PortKey) bool { return k.Name == name }) {
			ports = append(ports, row)
		}
	}
	return ports
}
