package statuspage

import (
	"fmt"
	"time"

	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/registry"
)

// overridden is a row of an endpoint with what an operator has done, if that is something.
func (p *Page) overridden(row endpointRow, service registry.Name, addr registry.Addr, now time.Time) endpointRow {
	if o, ok := p.node.Balancer.OverrideOf(service, addr); ok {
		row.State = format.Override(&o, now)
	}
	return row
}

// maxOverrides is how many overrides a report lists.
const maxOverrides = 100

// overridesOf lists in words what operators have done to endpoints of a service, or with the zero name of all.
func (s *snapshot) overridesOf(service registry.Name) (all []string) {
	for _, o := range s.overrides {
		if o.IsOfNode() || (service != registry.Name{}) && o.Service != service {
			continue
		}
		if len(all) == maxOverrides {
			return append(all, "and more")
		}
		all = append(all, fmt.Sprintf("%s of %s was %s.", registry.Label(o.Addr.String()), o.Service.Label(), format.Override(&o, s.at)))
	}
	return all
}
