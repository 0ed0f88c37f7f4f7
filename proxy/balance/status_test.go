package balance

import (
	"math"
	"slices"
	"sync"
	"testing"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/registry"
)

// TestAClientIsCountedThroughoutAllChanges: whatever the record of its service becomes, who counts the clients of an endpoint meets each of them,
// also one whose endpoint was chosen before it left.
func TestAClientIsCountedThroughoutAllChanges(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	r := lb.Hold(registry.PortKey{Name: webName})
	a, b := "10.0.0.1:80", "10.0.0.2:80"
	behind(lb, "", a)
	first, later := r.Endpoints()[0], (*rotation.Endpoint)(nil)
	give(first)
	var over, looks sync.WaitGroup
	changed := make(chan struct{})
	over.Go(func() {
		defer close(changed)
		for range 2000 {
			behind(lb, "", b)
			behind(lb, "", b, a)
			later = r.Endpoints()[1]
			behind(lb, "")
			behind(lb, "", a)
		}
	})
	looks.Go(func() {
		for {
			if n := lb.ClientsOf(registry.Name{}, matching(a)); n != 1 {
				t.Errorf("the endpoint has %d clients; want 1", n)
				return
			}
			select {
			case <-changed:
				return
			default:
			}
		}
	})
	over.Wait()
	looks.Wait()
	give(later) // it was nobody's when it left
	if n := lb.ClientsOf(webName, matching(a)); n != 2 {
		t.Errorf("the endpoint has %d clients after another has come that chose it before it left; want 2", n)
	}
}

// give has an endpoint be given a client.
func give(e *rotation.Endpoint) {
	if err := e.BeginDial(math.MaxInt64); err == nil {
		e.Given()
	}
}

// serviceOver is a service with one port over each of these protocols.
func serviceOver(protocols ...registry.Protocol) *registry.Service {
	service := &registry.Service{Name: web}
	for _, p := range protocols {
		service.Ports = append(service.Ports, registry.Port{Protocol: p, Number: 53})
	}
	return service
}

// statusOf is the status of the rotation of a balancer that has one.
func statusOf(t *testing.T, lb *LoadBalancerRR) rotation.Status {
	t.Helper()
	all := slices.Collect(lb.RotationStatus())
	if len(all) != 1 {
		t.Fatalf("there are %d rotations; want one", len(all))
	}
	return all[0]
}

// TestAProtocolThatIsNotOfferedDoesNotCount: nobody would ever find that an endpoint answers over it. A record that is corrected begins anew.
func TestAProtocolThatIsNotOfferedDoesNotCount(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setEndpoints(lb, web, 1, 2)
	r := lb.Hold(registry.PortKey{Name: web})
	defer lb.Release(r)
	fail := func() {
		for _, e := range r.Endpoints() {
			e.Failed(registry.TCP)
		}
	}
	lb.setService(web, serviceOver(registry.TCP))
	if fail(); statusOf(t, lb).Condition != health.NoAnswer {
		t.Fatalf("when no endpoint answers: %+v", statusOf(t, lb))
	}
	wantServed := func(when string) {
		t.Helper()
		if s := statusOf(t, lb); s.Condition != health.Served || s.Failing != 0 {
			t.Errorf("%s the condition is %v, and %d endpoints fail; want it served", when, s.Condition, s.Failing)
		}
		if e := lb.Status()[0]; !e.FailingSince.IsZero() || !e.EjectedUntil.IsZero() {
			t.Errorf("%s an endpoint fails: %+v", when, e)
		}
	}
	lb.setService(web, serviceOver(registry.UDP))
	wantServed("when the service is offered over the other protocol,")
	fail()
	wantServed("after clients that came before have failed,")
	lb.setService(web, serviceOver(registry.TCP))
	wantServed("when the service is offered over both in turn,")
	if got := chosen(t, r, 2); got[0] == got[1] {
		t.Errorf("clients are given %v; want each endpoint", got)
	}
}

func TestEndpointsThatFailOverOneProtocolEachServeClientsOfBoth(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	setEndpoints(lb, web, 1, 2)
	r := lb.Hold(registry.PortKey{Name: web})
	defer lb.Release(r)
	lb.setService(web, serviceOver(registry.TCP, registry.UDP))
	r.Endpoints()[0].Failed(registry.TCP)
	r.Endpoints()[1].Failed(registry.UDP)
	if s := statusOf(t, lb); s.Condition != health.Served || s.Failing != 2 {
		t.Errorf("the condition is %v, and %d endpoints fail; want it served, and 2", s.Condition, s.Failing)
	}
}
