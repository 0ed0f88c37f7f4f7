package statuspage

import (
	"time"

	"kubeproxy/cmd/internal/statuspage/recent"
	"kubeproxy/registry"
)

// A Report says in words what the page shows, for those who have no browser.
type Report struct {
	Host     string    `json:"host"`
	Version  string    `json:"version"`
	Time     time.Time `json:"time"`
	OK       bool      `json:"ok"`
	Verdict  string    `json:"verdict"`            // the first sentence
	Problems []string  `json:"problems,omitempty"` // a sentence each; the first one is the verdict
	Figures  string    `json:"figures,omitempty"`

	Overrides []string `json:"overrides,omitempty"` // what operators have done to endpoints, a sentence each

	Service *ServiceReport `json:"service,omitempty"` // if one was asked for
}

// A ServiceReport is about one service.
type ServiceReport struct {
	Name      string           `json:"name"`
	Algorithm string           `json:"algorithm"`
	Ports     []PortReport     `json:"ports"`
	Endpoints []EndpointReport `json:"endpoints"`
	More      int              `json:"endpoints_left_off,omitempty"`
}

// A PortReport is about one port of a service.
type PortReport struct {
	Protocol string `json:"protocol"`
	Address  string `json:"address,omitempty"` // none: that of the node
	Port     uint16 `json:"port"`
	Name     string `json:"name,omitempty"`
	State    string `json:"state"`
	Active   int64  `json:"active"`
}

// An EndpointReport is about one endpoint of a service.
type EndpointReport struct {
	Port     string `json:"port_name,omitempty"`
	Address  string `json:"address"`
	Weight   int    `json:"weight"`
	State    string `json:"state"`
	Active   int64  `json:"active"`
	Given    uint64 `json:"given"`
	Failures uint64 `json:"failures"`
}

// lookAnew returns a snapshot of now: an operator who has just acted wants to see what came of it.
func (p *Page) lookAnew() *snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest = nil
	return p.lookLocked()
}

// Report reports on the node.
func (p *Page) Report() Report {
	s := p.lookAnew()
	return p.report(s, s.listed, registry.Name{}, "All is well.", s.figures())
}

// ReportOf reports on a service. It returns false if there is neither such a service nor a problem of it.
func (p *Page) ReportOf(name registry.Name) (Report, bool) {
	s := p.lookAnew()
	ports, service := s.of(name), p.node.Proxier.Service(name)
	problems := about(s.problems, name)
	if service == nil && len(ports) == 0 && len(problems) == 0 {
		return Report{}, false
	}
	r := p.report(s, problems, name, name.Label()+" is well.", "")
	r.Service = &ServiceReport{Name: name.Label(), Algorithm: p.algorithm(service).String(), Ports: []PortReport{}, Endpoints: []EndpointReport{}}
	for i := range ports[:min(len(ports), maxServicePorts)] {
		sp := newServicePort(&ports[i], name)
		r.Service.Ports = append(r.Service.Ports, PortReport{sp.Listener.Protocol.String(), sp.Listener.Address(), sp.Listener.Number, sp.Name, sp.State, sp.Active})
	}
	for _, key := range rotationKeys(ports, name) {
		first, n, _ := p.node.Balancer.EndpointsOf(key, maxEndpointRows)
		for _, e := range first {
			row := p.overridden(newEndpointRow(e, false, recent.Rates{}, s.at), name, e.Addr, s.at)
			r.Service.Endpoints = append(r.Service.Endpoints, EndpointReport{registry.Label(key.Port), row.Addr, row.Weight, row.State, row.Active, row.Given, row.Failures})
		}
		r.Service.More += n - len(first)
	}
	return r, true
}

func (p *Page) report(s *snapshot, problems []problem, service registry.Name, well, figures string) Report {
	r := Report{Overrides: s.overridesOf(service), Host: p.node.Host, Version: p.node.Version, Time: s.at, OK: len(problems) == 0, Verdict: well, Figures: figures}
	for _, q := range problems {
		r.Problems = append(r.Problems, q.Text)
	}
	if !r.OK {
		r.Verdict = r.Problems[0]
	}
	return r
}
