package balance

import (
	"testing"

	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/probe"
	"kubeproxy/registry"
)

// Operators are told whether an endpoint is looked at while no client comes.
func TestAnEndpointSaysWhetherItIsChecked(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	lb.Checker = checks.New(checks.Settings{On: true}, nil, nil) // which does not run
	setEndpoints(lb, web, 1)
	r := lb.Hold(registry.PortKey{Name: web})
	defer lb.Release(r)
	for _, c := range []struct {
		wanted registry.Check
		want   bool
	}{{registry.Check{}, probe.Supported}, {registry.Check{Wanted: registry.CheckOff}, false}} {
		service := &registry.Service{Name: web, Ports: []registry.Port{{Number: 80}}}
		service.Checks = c.wanted
		lb.SetService(web, service)
		if all := lb.Status(); len(all) != 1 || all[0].Checked != c.want {
			t.Errorf("wanted %+v: %+v; want it checked: %t", c.wanted, all, c.want)
		}
	}
}
