package rotation

import (
	"testing"

	"kubeproxy/registry"
)

// Where all endpoints fail, clients are given them all. When another endpoint passes, a connection that began so goes on, also in a successor.
func TestAConnectionThatBeganWhileAllFailedGoesOnWhenAnotherPasses(t *testing.T) {
	r := numbered(1, 2)
	r.terms.Store(&registry.Terms{Failure: registry.Failure{Close: true}})
	checked := func(e *Endpoint, passes bool) {
		e.stats().health[registry.TCP].Checked(passes, 0)
		e.follow(registry.TCP)
	}
	all := r.Endpoints()
	checked(all[0], false)
	checked(all[1], false)
	began := all[0].Lifetime()
	checked(all[1], true)
	if began.IsOver() || all[0].PresentLifetime() != began {
		t.Errorf("its lifetime is over: %t; it has another one in a successor: %t", began.IsOver(), all[0].PresentLifetime() != began)
	}
	if !all[0].Lifetime().IsOver() {
		t.Error("another connection may begin at the endpoint that fails")
	}
}
