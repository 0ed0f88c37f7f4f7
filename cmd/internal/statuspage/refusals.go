package statuspage

import (
	"fmt"
	"slices"
	"time"

	"kubeproxy/cmd/internal/statuspage/advice"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// sampleEvery is how often refusals are read though there is no viewer: who looks wants to know whether they go on.
const sampleEvery = time.Minute

func (p *Page) sample() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.refusals.Read(time.Now(), p.node.Proxier.EachTotals())
		p.sampler.Reset(sampleEvery)
	}
}

// unserved are the reasons of clients for whom a service has no endpoint.
var unserved = []traffic.Reason{traffic.NoEndpoints, traffic.ZeroWeight, traffic.NoLocalEndpoint, traffic.AllFailed, traffic.EndpointNotAllowed}

// turnedAway notes why clients of a port were turned away lately.
func (p *Page) turnedAway(row *port, now time.Time) {
	lately := func(code string) bool { return p.refusals.Lately(now, row.Owner, row.ID.Protocol, code) }
	for _, r := range unserved {
		row.unserved = row.unserved || row.rotation.Condition.TurnsAway() && lately(r.String())
	}
	for _, l := range advice.Limits {
		if lately(l.Code) {
			row.limits = append(row.limits, l)
		}
	}
}

// overLimits are the services whose clients were turned away by a limit.
func (s *snapshot) overLimits() (all []problem) {
	said := make(map[string]bool)
	for _, row := range s.ports {
		for _, l := range row.limits {
			text := fmt.Sprintf("Clients of %s over %s were turned away in the last five minutes: %s.", row.label, row.ID.Protocol, l.Text)
			if said[text] || l.Code == endpointLimit && row.rotation.Condition == health.AllFull { // which conditions names
				continue
			}
			said[text] = true
			about := problem{Text: text, Services: []registry.Name{row.Owner.Name}, Link: toService(row.Owner.Name)}
			if l.OthersServed {
				about.Severity = watchIt
			}
			all = append(all, about)
		}
	}
	return all
}

var endpointLimit = traffic.EndpointLimit.String()

// overEndpoints reports whether clients were turned away because all endpoints were full.
func (r *port) overEndpoints() bool {
	return slices.ContainsFunc(r.limits, func(l advice.Limit) bool { return l.Code == endpointLimit })
}
