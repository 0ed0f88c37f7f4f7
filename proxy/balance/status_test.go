package balance

import (
	"math"
	"sync"
	"testing"

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
