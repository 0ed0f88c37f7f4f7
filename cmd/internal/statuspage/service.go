package statuspage

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"kubeproxy/cmd/internal/history"
	"kubeproxy/cmd/internal/recordtext"
	"kubeproxy/cmd/internal/statuspage/drawing"
	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/cmd/internal/statuspage/recent"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// How much the page of one service shows. A record may list a thousand ports, and tens of thousands of endpoints.
const (
	maxServicePorts    = 50
	maxRotations       = 8
	maxEndpointRows    = 100
	maxServiceEndings  = 20
	maxRefusedOfOneKey = 4
)

// serviceData is what the page of one service shows.
type serviceData struct {
	frame
	Name       registry.Name
	Verdict    verdict
	Ports      []servicePort
	MorePorts  int
	Affinity   string
	Sources    string // who may connect
	Checks     string // how endpoints are checked
	Header     string // of the PROXY protocol, that endpoints get
	Terms      string // that the record sets by annotations
	Algorithm  string // that chooses the endpoints of new clients
	InForce    string // the record, as the node understands it
	Endpoints  string // the same of the endpoints
	Refused    []recordtext.Refused
	Rotations  []rotationView
	Sparklines []drawing.Sparkline
	Reasons    []reasonRow
	Endings    []endingRow
	Clients    *clientTable
	Changes    []changeRow
	ActionPath string
}

// A servicePort is one port that a service owns, waits for, or asks for in vain.
type servicePort struct {
	Listener registry.ListenerID
	Name     string
	State    string
	OK       bool
	Carrier  string // who carries its clients
	Active   int64
	recent.Rates
}

// A rotationView is the endpoints of one port name, as they are shown.
type rotationView struct {
	Label     string
	Endpoints []endpointRow
	More      int
	Topology  drawing.Topology
	checked   bool // its endpoints are checked while no client comes
}

// An endpointRow is one endpoint as it is shown.
type endpointRow struct {
	Addr     string
	Where    string // as seen from the node, if that is known
	Weight   int
	Next     bool // the next new client is given it
	Failing  bool
	State    string
	Active   int64
	Given    uint64
	Failures uint64
	recent.Rates
}

// A reasonRow counts the endings of one reason.
type reasonRow struct {
	Reason string
	Recent int // among the last that the node remembers
	Ever   uint64
}

// service is the page of one service.
func (p *Page) service(r *http.Request) view {
	namespace, short, _ := strings.Cut(r.URL.Query().Get("name"), "/")
	name := registry.Name{Namespace: namespace, Name: short}
	s, points, speeds := p.watch(name)
	d := serviceData{
		frame:      p.frame(s, "/status/service", name.Label(), "name="+serviceHref(name)[len("/status/service?name="):]),
		Name:       name,
		Sparklines: drawing.Sparklines(points),
	}
	ports, service := s.of(name), p.node.Proxier.Service(name)
	problems := about(s.problems, name)
	d.Verdict = newVerdict(problems, name.Label()+" is well.", "", p.node.Host)
	missing := service == nil && len(ports) == 0 && len(problems) == 0
	if missing {
		d.Verdict = verdict{Text: "There is no service " + name.Label() + ".", Headline: "No such service – " + p.node.Host}
	}
	d.MorePorts = max(0, len(ports)-maxServicePorts)
	for i := range ports[:min(len(ports), maxServicePorts)] {
		d.Ports = append(d.Ports, newServicePort(&ports[i], name))
	}
	algorithm := p.algorithm(service)
	d.Algorithm = algorithm.String()
	d.addRecord(service, s, name)
	d.addRotations(p, s, ports, speeds, algorithm == registry.RoundRobin)
	d.Checks = "none"
	if service != nil && slices.ContainsFunc(d.Rotations, func(r rotationView) bool { return r.checked }) {
		d.Checks = checksText(&service.Terms().Checks)
	}
	d.addEndings(p, s)
	d.ActionPath = p.node.ActionPath
	d.Clients = &clientTable{Missing: "Clients of a service that is not there are not listed; some may go on."}
	if !missing && name != (registry.Name{}) { // no name would select all clients
		d.Clients = p.clientsOf(name)
	}
	d.Changes, _ = p.changesOf(maxServiceChanges, func(e *history.Entry) bool { return e.Service == name.Label() }, s.at)
	parts := []part{
		{id: "verdict", template: "verdict", data: d.Verdict},
		{id: "more", template: "more", data: d.Verdict},
		{id: "ports-body", template: "serviceports", data: d},
		{id: "rotations", template: "rotations", data: d},
		{id: "clients", template: "clients", data: d.Clients},
		{id: "sparklines", template: "sparklines", data: d},
		{id: "record", template: "record", data: d},
		{id: "reasons", template: "reasons", data: d},
		{id: "endings", template: "endingrows", data: d.Endings},
		{id: "changes", template: "changerows", data: d.Changes},
		{id: "at", template: "at", data: d},
	}
	if missing { // a page that was open before goes on, and says so
		d.Events = ""
		return view{template: "missing.html", status: http.StatusNotFound, data: d, parts: parts}
	}
	return view{template: "service.html", status: http.StatusOK, data: d, parts: parts}
}

// watch looks at the node, and goes on with the history of a service that is there. speeds are how fast its endpoints are given clients.
func (p *Page) watch(name registry.Name) (s *snapshot, points []recent.Point, speeds map[recent.EndpointKey]recent.Rates) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s = p.lookLocked()
	if p.node.Proxier.Service(name) == nil {
		return s, nil, nil
	}
	h := p.histories.Of(name, s.at)
	read := make(map[recent.EndpointKey]recent.Counts)
	for _, key := range rotationKeys(s.of(name), name) {
		first, _, _ := p.node.Balancer.EndpointsOf(key, maxEndpointRows)
		for _, e := range first {
			read[recent.EndpointKey{Port: key.Port, Addr: e.Addr}] = recent.Counts{Begun: e.Connections}
		}
	}
	now := time.Now()
	h.Endpoints.Read(now, read)
	speeds = make(map[recent.EndpointKey]recent.Rates)
	for key, c := range read {
		speeds[key] = h.Endpoints.Rate(now, key, c)
	}
	return s, slices.Clone(h.Points), speeds
}

// rotationKeys lists the rotations of the ports that a service owns or waits for.
func rotationKeys(ports []port, name registry.Name) (keys []registry.PortKey) {
	for i := range ports {
		for _, k := range ports[i].claims() {
			if k.Name == name && !slices.Contains(keys, k) && len(keys) < maxRotations {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

func newServicePort(r *port, name registry.Name) servicePort {
	sp := servicePort{Listener: r.ID}
	for _, k := range r.claims() {
		if k.Name == name {
			sp.Name = registry.Label(k.Port)
		}
	}
	switch {
	case r.Refused:
		sp.State = "refused: " + cut(r.Err.Error())
	case r.Owner.Name != name:
		sp.State = "waits: " + r.label + " has it"
	case r.Err != nil:
		sp.State = "not open: " + cut(r.Err.Error())
	default:
		sp.State, sp.OK, sp.Active, sp.Rates = "open", true, r.active, r.Rates
		sp.Carrier = r.Kernel.Carrier()
		if n := len(r.Waiting); n > 0 {
			sp.State = fmt.Sprintf("open; %s waits for it", label(r.Waiting[0]))
			if n > 1 {
				sp.State = fmt.Sprintf("open; %s and %d more wait for it", label(r.Waiting[0]), n-1)
			}
		}
	}
	return sp
}

// addRecord adds what the registry says of the service.
func (d *serviceData) addRecord(service *registry.Service, s *snapshot, name registry.Name) {
	d.Affinity, d.Sources, d.Header, d.Terms = "none", "anyone", "none", "none"
	if service != nil {
		terms := service.Terms()
		d.Terms = cut(cmp.Or(terms.String(), d.Terms))
		d.InForce = recordtext.Service(service)
		d.Header = cmp.Or(terms.ProxyHeader.String(), d.Header)
		if terms.Affinity == registry.AffinityClientIP {
			d.Affinity = fmt.Sprintf("a client gets the same endpoint for %v after its last connection", terms.AffinityTimeout)
		}
		var ranges []string
		for _, r := range terms.SourceRanges {
			ranges = append(ranges, r.String())
		}
		d.Sources = cut(cmp.Or(strings.Join(ranges, ", "), d.Sources))
	}
	for _, from := range s.sources {
		for _, r := range from.Rejections {
			if key, err := registry.ParseKey(r.Key); err == nil && key.Name == name && r.Kind != registry.KindEndpointSlice && len(d.Refused) < maxRefusedOfOneKey {
				d.Refused = append(d.Refused, recordtext.Compare(r, service))
			}
		}
	}
}

// checksText says how endpoints that are checked are checked, as far as the record says so.
func checksText(c *registry.Check) string {
	how := "a connection"
	switch {
	case c.Path != "":
		how = "a " + cmp.Or(c.Method, "GET") + " of " + registry.Label(c.Path)
	case c.Send != "":
		how = "a datagram"
	}
	if c.Interval > 0 {
		how += fmt.Sprintf(" every %v", c.Interval)
	}
	return how
}

// algorithm is how endpoints of a service are chosen.
func (p *Page) algorithm(service *registry.Service) registry.Balance {
	if service == nil {
		return p.node.Balancer.Algorithm(registry.BalanceUnsaid)
	}
	return p.node.Balancer.Algorithm(service.Terms().Balance)
}

// addRotations adds the endpoints of each port. Only where they are given out in turn, the next one is known before its client comes.
func (d *serviceData) addRotations(p *Page, s *snapshot, ports []port, speeds map[recent.EndpointKey]recent.Rates, inTurn bool) {
	var subsets []recordtext.Subset
	for _, key := range rotationKeys(ports, d.Name) {
		first, n, next := p.node.Balancer.EndpointsOf(key, maxEndpointRows)
		one := rotationView{Label: label(key), More: n - len(first)}
		for i, e := range first {
			one.checked = one.checked || e.Checked
			row := newEndpointRow(e, inTurn && i == next && e.Weight > 0 && e.FailingSince.IsZero(), speeds[recent.EndpointKey{Port: key.Port, Addr: e.Addr}], s.at)
			one.Endpoints = append(one.Endpoints, p.overridden(row, key.Name, e.Addr, s.at))
		}
		one.Topology = topologyOf(ports, key, &one)
		d.Rotations = append(d.Rotations, one)
		subsets = append(subsets, recordtext.NewSubset(key.Port, first, n))
	}
	d.Endpoints = recordtext.Endpoints(d.Name, subsets)
}

// topologyOf draws a rotation with the ports that lead to it.
func topologyOf(ports []port, key registry.PortKey, r *rotationView) drawing.Topology {
	var lead []drawing.Port
	for i := range ports {
		if p := &ports[i]; !p.Refused && p.Owner == key {
			lead = append(lead, drawing.Port{ID: p.ID, Active: p.active, Rates: p.Rates})
		}
	}
	var ends []drawing.Endpoint
	for _, e := range r.Endpoints {
		ends = append(ends, drawing.Endpoint{Addr: e.Addr, Failing: e.Failing, Rates: e.Rates})
	}
	return drawing.NewTopology(r.Label, lead, ends, r.More)
}

func newEndpointRow(e rotation.EndpointStatus, next bool, speed recent.Rates, now time.Time) endpointRow {
	row := endpointRow{
		Addr: registry.Label(e.Addr.String()), Where: e.Place.String(), Weight: e.Weight, Next: next, Active: e.Active, Given: e.Connections, Failures: e.Failures, Rates: speed,
		State: "answers", Failing: !e.FailingSince.IsZero(),
	}
	switch {
	case e.CheckError != "":
		row.State = cut(fmt.Sprintf("its checks fail since %s: %s", format.Clock(e.FailingSince, now), e.CheckError))
	case row.Failing && !e.EjectedUntil.IsZero():
		row.State = fmt.Sprintf("does not answer since %s, tried again at %s", format.Clock(e.FailingSince, now), format.Clock(e.EjectedUntil, now))
	case row.Failing:
		row.State = fmt.Sprintf("does not answer since %s, tried with the next client", format.Clock(e.FailingSince, now))
	case e.Weight == 0:
		row.State = "gets no new clients: its weight is 0"
	case e.Connections == 0:
		row.State = "not used yet"
	}
	return row
}

// addEndings adds why clients of the service left.
func (d *serviceData) addEndings(p *Page, s *snapshot) {
	endings := p.node.Endings.Last(func(e *traffic.Ending) bool { return e.Service.Name == d.Name })
	var recent [traffic.NumReasons]int
	for i := range endings {
		recent[endings[i].Reason]++
		if i < maxServiceEndings {
			d.Endings = append(d.Endings, newEndingRow(&endings[i], s.at))
		}
	}
	var ever [traffic.NumReasons]uint64
	for t := range p.node.Proxier.EachTotals() {
		if t.Service.Name != d.Name {
			continue
		}
		for r, n := range t.Ended {
			ever[r] += n
		}
	}
	for _, r := range traffic.Reasons() {
		if ever[r] > 0 || recent[r] > 0 {
			d.Reasons = append(d.Reasons, reasonRow{r.String(), recent[r], ever[r]})
		}
	}
	slices.SortStableFunc(d.Reasons, func(a, b reasonRow) int { return cmp.Or(cmp.Compare(b.Recent, a.Recent), cmp.Compare(b.Ever, a.Ever)) })
}
