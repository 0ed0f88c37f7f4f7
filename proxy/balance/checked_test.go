package balance

import (
	"fmt"
	"testing"

	"kubeproxy/proxy/balance/checks"
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
	}{{registry.Check{}, checks.Supported}, {registry.Check{Wanted: registry.CheckOff}, false}} {
		service := &registry.Service{Name: web, Ports: []registry.Port{{Number: 80}}}
		service.SetTerms(registry.Terms{Checks: c.wanted})
		lb.SetService(web, service)
		if all := lb.Status(); len(all) != 1 || all[0].Checked != c.want {
			t.Errorf("wanted %+v: %+v; want it checked: %t", c.wanted, all, c.want)
		}
	}
}

// BenchmarkSetService measures what a service costs for each port, with endpoints for each. The cost is linear where it does not grow with
// the number of ports.
func BenchmarkSetService(b *testing.B) {
	for _, n := range []int{1, 100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			lb := NewLoadBalancerRR(false)
			lb.Checker = checks.New(checks.Settings{}, nil, nil) // which does not run
			service := &registry.Service{Name: web}
			for i := range n {
				name := fmt.Sprintf("p%05d", i)
				service.Ports = append(service.Ports, registry.Port{Name: name, Number: uint16(i + 1)})
				lb.Hold(registry.PortKey{Name: web, Port: name})
			}
			b.ReportAllocs()
			for b.Loop() {
				lb.SetService(web, service)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/port")
		})
	}
}
