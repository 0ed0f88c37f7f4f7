package rotation

import (
	"testing"

	"kubeproxy/proxy/balance/checks"
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

// A successor is told of it: what began before the failure is closed there, as it would have been here.
func TestAnEndpointThatFailsKeepsOnlyWhatBeganAfterItFailed(t *testing.T) {
	r := numbered(1, 2)
	r.rules.Checker = checks.New(checks.Settings{}, nil, nil) // which does not run
	r.terms.Store(&registry.Terms{Failure: registry.Failure{Close: true}})
	all := r.Endpoints()
	e, before := all[0], all[0].Lifetime()
	all[1].Checked(registry.TCP, false)
	if e.StaysWhileFailing(before) {
		t.Error("it passes, and keeps a connection although it fails")
	}
	e.Checked(registry.TCP, false)
	after := e.Lifetime()
	if e.StaysWhileFailing(before) || !e.StaysWhileFailing(after) || !e.StaysWhileFailing(nil) {
		t.Errorf("it keeps what began before: %t; after: %t; without a lifetime, since nothing closed it then: %t; want false, true, true",
			e.StaysWhileFailing(before), e.StaysWhileFailing(after), e.StaysWhileFailing(nil))
	}
}
