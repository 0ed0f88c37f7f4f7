package node

import (
	"cmp"
	"slices"
	"time"

	"kubeproxy/config"
	"kubeproxy/proxy"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A configz is what /configz shows: the settings of the node, the state of its sources, and its ports.
type configz struct {
	Settings map[string]string  `json:"settings"`          // flags and their values
	Ready    string             `json:"ready"`             // yes, or why not
	Etcd     sourcez            `json:"etcd"`              // all sources together, whether they are etcds or not; users know the name
	Sources  map[string]sourcez `json:"sources,omitempty"` // each source by its name, if there are several
	Limits   []limitz           `json:"limits"`
	Checks   *checkz            `json:"checks,omitempty"` // of endpoints, if there are any
	Ports    []portz            `json:"ports"`
	LeftOff  int                `json:"ports_left_off"` // ports beyond maxPorts
}

// A sourcez is the state of one source, or of all sources together.
type sourcez struct {
	Connected  bool    `json:"connected"`
	Reason     string  `json:"reason,omitempty"` // why it is not connected
	Revision   int64   `json:"revision"`
	ClusterID  string  `json:"cluster_id"` // of the store, if it has an identity
	ConfigAge  float64 `json:"config_age_seconds"`
	Listed     string  `json:"listed,omitempty"` // when the last full list was read
	Services   int     `json:"services"`
	Endpoints  int     `json:"endpoints"`
	Rejected   int     `json:"rejected_keys"`
	Kept       int     `json:"kept_services"` // whose last instances are in force though their leases have ended
	Sessions   uint64  `json:"sessions"`
	Resyncs    uint64  `json:"resyncs"`
	Divergence uint64  `json:"divergences"`
	Setbacks   uint64  `json:"setbacks"`

	Rejections []rejectionz `json:"rejections"`          // the first of the rejected keys; config.Status bounds them
	Elections  []electionz  `json:"elections,omitempty"` // the keys that elect endpoints; likewise
}

// An electionz is a key that elects endpoints.
type electionz struct {
	Key      string          `json:"key"`
	Holder   string          `json:"holder"` // empty: nobody
	Services string          `json:"services"`
	Elects   []string        `json:"elects"` // these services, the first of them
	Count    uint64          `json:"changes_total"`
	Changes  []holderChangez `json:"changes"` // the last ones, the oldest first

	Paused      bool     `json:"paused"`      // this and the rest: of a cluster of Patroni
	Unconfirmed bool     `json:"unconfirmed"` // etcd is away, and the holder does not confirm that it is the primary
	API         string   `json:"api,omitempty"`
	TTL         float64  `json:"ttl_seconds,omitempty"`
	LeftOut     int      `json:"left_out"`
	Out         []string `json:"left_out_replicas"` // the first of them, and why
	Unusable    int      `json:"rejected"`
	Rejected    []string `json:"rejected_keys"` // the first of them, and why
}

// A holderChangez says from when on a key had a name.
type holderChangez struct {
	Holder   string `json:"holder"`
	Revision int64  `json:"revision"`
	At       string `json:"at"`
}

type rejectionz struct {
	Key      string `json:"key"`
	Reason   string `json:"reason"`
	Revision int64  `json:"revision"`
}

// A checkz is what checks of endpoints have found.
type checkz struct {
	Addresses int            `json:"addresses"`
	Failing   int            `json:"failing"`
	Unknown   int            `json:"unknown"` // not checked yet
	Longest   []checkFailure `json:"failing_longest"`
	Overdue   int            `json:"overdue,omitempty"` // without a result for two intervals and a timeout
	Oldest    string         `json:"overdue_longest,omitempty"`
	Busiest   string         `json:"busiest_service,omitempty"` // with the most checks under way, if any is overdue
}

// A checkFailure is an address whose checks fail.
type checkFailure struct {
	Addr     string `json:"address"`
	Protocol string `json:"protocol"`
	Path     string `json:"path,omitempty"` // that was asked for by HTTP
	Since    string `json:"since"`
	Error    string `json:"error"` // of the last check
}

type limitz struct {
	Name string `json:"name"`
	Used int    `json:"used"`
	Max  int    `json:"max"`
}

type portz struct {
	Protocol string   `json:"protocol"`
	Address  string   `json:"address,omitempty"` // none: that of the node
	Port     uint16   `json:"port"`
	Owner    string   `json:"owner"`
	Waiting  []string `json:"waiting,omitempty"`
	Error    string   `json:"error,omitempty"`   // why the port is not open
	Kernel   string   `json:"kernel,omitempty"`  // carried, or why the kernel does not carry it; empty: it carries no port
	Refused  bool     `json:"refused,omitempty"` // no service may claim it

	Endpoints []endpointz `json:"endpoints,omitempty"` // of the owner, the first in the order of the record
	Number    int         `json:"endpoints_total"`
	Failing   int         `json:"endpoints_failing"`        // of all of them
	Near      int         `json:"endpoints_near,omitempty"` // that clients of this node are given first; none: all are alike
	Spilling  bool        `json:"spilling,omitempty"`       // none of those answers, so clients are given others
}

// An endpointz is one endpoint of a port, and whether it answers.
type endpointz struct {
	Address  string `json:"address"`
	Where    string `json:"where,omitempty"`         // as seen from this node, if that is known
	Weight   int    `json:"weight"`                  // its share of clients
	Active   int64  `json:"active"`                  // connections and sessions now
	Given    uint64 `json:"given"`                   // since it came
	Failures uint64 `json:"failures"`                // attempts that did not reach it
	Since    string `json:"failing_since,omitempty"` // it did not answer the last client that was given it
	Ejected  string `json:"ejected_until,omitempty"` // clients get another one

	Override *overridez `json:"override,omitempty"` // by an operator
}

// An overridez is what an operator wants in place of the record.
type overridez struct {
	Word  string `json:"word"`
	UID   int    `json:"uid"`
	Began string `json:"began"`
	Until string `json:"until"`
}

// Bounds of what is shown: the answer stays below a few megabytes, whatever is in the registry.
const (
	maxPorts   = 5000
	maxWaiting = 10
	maxListed  = 16     // endpoints of one port
	maxAddrs   = 20_000 // endpoints in all
	maxFailing = 100
)

func (h *health) configz(settings map[string]string, limits []traffic.Limit, checker *checks.Checker) configz {
	z := configz{
		Settings: settings,
		Ready:    "yes",
		Etcd:     newSourcez(config.Total(h.sources...), h.age()),
		Checks:   newCheckz(checker),
		Limits:   []limitz{},
		Ports:    []portz{},
	}
	if _, err := h.ready(); err != nil {
		z.Ready = err.Error()
	}
	for _, l := range limits {
		z.Limits = append(z.Limits, limitz(l))
	}
	if len(h.sources) > 1 {
		z.Sources = make(map[string]sourcez)
		for _, s := range h.sources {
			st := s.Status()
			z.Sources[s.Name()] = newSourcez(st, time.Since(cmp.Or(st.Current, h.started)))
		}
	}
	ports, room := h.ports(), maxAddrs
	shown := ports[:min(len(ports), maxPorts)]
	z.Ports = slices.Grow(z.Ports, len(shown))
	for _, p := range shown {
		port := newPortz(p)
		if !p.Refused {
			if all, ok := h.balancer.StatusOfPort(p.Owner); ok {
				r := all.Of(p.ID.Protocol, p.Local)
				port.Number, port.Failing, port.Near, port.Spilling = r.Endpoints, r.Failing, r.Near, r.Spilling
			}
			listed, _, _ := h.balancer.EndpointsOf(p.Owner, min(maxListed, room))
			for _, e := range listed {
				port.Endpoints = append(port.Endpoints, newEndpointz(e, h.balancer))
			}
			room -= len(listed)
		}
		z.Ports = append(z.Ports, port)
	}
	z.LeftOff = len(ports) - len(z.Ports)
	return z
}

func newSourcez(st config.Status, age time.Duration) sourcez {
	z := sourcez{
		Connected: st.Connected, Reason: st.Reason, Revision: st.Revision, ClusterID: st.Cluster, ConfigAge: age.Seconds(),
		Services: st.Services, Endpoints: st.Endpoints, Rejected: st.Rejected, Kept: st.Kept,
		Sessions: st.Sessions, Resyncs: st.Resyncs, Divergence: st.Divergences, Setbacks: st.Setbacks,
		Rejections: []rejectionz{},
	}
	for _, r := range st.Rejections {
		z.Rejections = append(z.Rejections, rejectionz{r.Key, r.Reason, r.Revision})
	}
	for i := range st.Elections {
		z.Elections = append(z.Elections, newElectionz(&st.Elections[i]))
	}
	if !st.Listed.IsZero() {
		z.Listed = st.Listed.UTC().Format(time.RFC3339)
	}
	return z
}

func newElectionz(e *config.Election) electionz {
	z := electionz{
		Key: e.Key, Holder: e.Holder, Services: e.Services, Elects: []string{}, Count: e.Count, Changes: []holderChangez{},
		Paused: e.Paused, Unconfirmed: e.Unconfirmed, API: e.API, TTL: e.TTL.Seconds(), LeftOut: e.LeftOut, Out: append([]string{}, e.Out...), Unusable: e.Unusable, Rejected: append([]string{}, e.Rejected...),
	}
	for _, name := range e.Elects {
		z.Elects = append(z.Elects, name.Label())
	}
	for _, c := range e.Changes {
		z.Changes = append(z.Changes, holderChangez{c.Holder, c.Revision, c.At.UTC().Format(time.RFC3339)})
	}
	return z
}

func newCheckz(checker *checks.Checker) *checkz {
	if checker == nil {
		return nil
	}
	n := checker.Counts()
	if n.Targets == 0 {
		return nil
	}
	z := &checkz{Addresses: n.Targets, Failing: n.Failing, Unknown: n.Unknown, Longest: []checkFailure{}}
	if o := checker.Overdue(); o.Number > 0 {
		z.Overdue, z.Oldest = o.Number, registry.Label(o.Longest.String())
		if o.Busiest != (registry.Name{}) {
			z.Busiest = o.Busiest.Label()
		}
	}
	for _, t := range checker.Failing(maxFailing) {
		is := t.State()
		z.Longest = append(z.Longest, checkFailure{registry.Label(t.Addr.String()), t.Question.Protocol.String(), t.Question.Path, is.Since.UTC().Format(time.RFC3339), is.Err})
	}
	return z
}

func newPortz(p proxy.PortStatus) portz {
	z := portz{Protocol: p.ID.Protocol.String(), Address: p.ID.Address(), Port: p.ID.Number, Refused: p.Refused}
	if p.Kernel != kernel.Off {
		z.Kernel = p.Kernel.String()
	}
	if !p.Refused {
		z.Owner = label(p.Owner)
	}
	for _, w := range p.Waiting[:min(len(p.Waiting), maxWaiting)] {
		z.Waiting = append(z.Waiting, label(w))
	}
	if p.Err != nil {
		z.Error = p.Err.Error()
	}
	return z
}

func newEndpointz(e rotation.EndpointStatus, balancer *balance.LoadBalancerRR) endpointz {
	z := endpointz{Address: registry.Label(e.Addr.String()), Where: e.Place.String(), Weight: e.Weight, Active: e.Active, Given: e.Connections, Failures: e.Failures}
	if !e.FailingSince.IsZero() {
		z.Since = e.FailingSince.UTC().Format(time.RFC3339)
	}
	if o, ok := balancer.OverrideOf(e.Service.Name, e.Addr); ok {
		z.Override = &overridez{o.Word.String(), o.UID, o.Began.UTC().Format(time.RFC3339), o.Until.UTC().Format(time.RFC3339)}
	}
	if !e.EjectedUntil.IsZero() {
		z.Ejected = e.EjectedUntil.UTC().Format(time.RFC3339)
	}
	return z
}

// label names one port of a service as "namespace/name:port".
func label(k registry.PortKey) string {
	if k.Port == "" {
		return k.Name.Label()
	}
	return k.Name.Label() + ":" + registry.Label(k.Port)
}
