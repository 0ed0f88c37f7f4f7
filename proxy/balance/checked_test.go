package balance

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/balance/health"
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
		lb.setService(web, service)
		if all := lb.Status(); len(all) != 1 || all[0].Checked != c.want {
			t.Errorf("wanted %+v: %+v; want it checked: %t", c.wanted, all, c.want)
		}
	}
}

func TestAnEndpointThatFailsGoesOnFailingWhenOnlyTheIntervalOfItsChecksChanges(t *testing.T) {
	if !checks.Supported {
		t.Skip("nothing is checked on this system")
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(-monotonic.Now()) // a bubble begins in the year 2000, before that clock does
		lb := NewLoadBalancerRR(false)
		lb.Checker = checks.New(checks.Settings{On: true}, allowing{}, allowing{})
		lb.Checker.Ask = func(k *checks.Key) error {
			if k.Addr == addr(1) {
				return errors.New("it fails")
			}
			return nil
		}
		setEndpoints(lb, web, 1, 2)
		r := lb.Hold(registry.PortKey{Name: web})
		defer lb.Release(r)
		want := func(check registry.Check, of ...health.Standing) {
			t.Helper()
			service := &registry.Service{Name: web, Ports: []registry.Port{{Number: 80}}}
			service.SetTerms(registry.Terms{Checks: check})
			lb.setService(web, service)
			for addr, got := range r.Standings(registry.TCP, netip.Addr{}) {
				if want := of[slices.Index(addrs(1, 2), addr)]; got != want {
					t.Errorf("by %+v, %v has standing %v; want %v", check, addr, got, want)
				}
			}
		}
		want(registry.Check{}, health.Awaited, health.Awaited)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); lb.Checker.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		stop()
		<-done
		for _, check := range []registry.Check{{}, {Interval: time.Hour}, {Timeout: time.Second}, {Fall: 9}, {Rise: 9}} {
			want(check, health.Failing, health.Sound)
		}
		if got := chosen(t, r, 3); !slices.Equal(got, []int{2, 2, 2}) {
			t.Errorf("clients were given %v; want 2, which passes", got)
		}
		want(registry.Check{Path: "/other"}, health.Awaited, health.Awaited) // which is another question
	})
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
				lb.setService(web, service)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/port")
		})
	}
}
