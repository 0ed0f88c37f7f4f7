package statuspage

import (
	"fmt"
	"time"

	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/proxy/balance"
	"kubeproxy/registry"
)

// overrideText says what an operator has done, who it was, and until when.
func overrideText(o *balance.Override, now time.Time) string {
	done := map[balance.Word]string{balance.Drain: "drained", balance.Disable: "disabled", balance.Weigh: fmt.Sprintf("given weight %d", o.Weight)}[o.Word]
	return fmt.Sprintf("%s by an operator (%s) at %s, until %s", done, balance.Who(o.UID), format.Clock(o.Began, now), format.Clock(o.Until, now))
}

// overridden is a row of an endpoint with what an operator has done, if that is something.
func (p *Page) overridden(row endpointRow, service registry.Name, addr registry.Addr, now time.Time) endpointRow {
	if o, ok := p.node.Balancer.OverrideOf(service, addr); ok {
		row.State = overrideText(&o, now)
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
		all = append(all, fmt.Sprintf("%s of %s was %s.", registry.Label(o.Addr.String()), o.Service.Label(), overrideText(&o, s.at)))
	}
	return all
}
