package statuspage

import (
	"kubeproxy/cmd/internal/statuspage/advice"
	"kubeproxy/registry"
)

// healthPorts are the services whose load balancers are not told about them.
func (p *Page) healthPorts() (all []problem) {
	for _, h := range p.node.HealthPorts() {
		about := problem{Text: advice.HealthPort(h), Services: []registry.Name{h.Service}, Link: toService(h.Service)}
		if h.Err != nil {
			about.Severity = watchIt // load balancers send its clients to other nodes
		}
		all = append(all, about)
	}
	return all
}
