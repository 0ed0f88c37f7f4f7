package tcp

import (
	"slices"
	"testing"
	"testing/synctest"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/removal"
	"kubeproxy/registry"
)

// TestAConnectionKnowsTheLifetimesWhoseEndMayCloseIt, and goes over with them: others cost it nothing.
func TestAConnectionKnowsTheLifetimesWhoseEndMayCloseIt(t *testing.T) {
	for _, c := range []struct {
		name  string
		terms registry.Terms
		known bool
	}{
		{"nothing closes it", registry.Terms{}, false},
		{"checks that fail do", registry.Terms{Failure: registry.Failure{Close: true}}, true},
		{"a removal does", registry.Terms{Removal: registry.Removal{Rule: registry.RemovalClose}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := follow(t, "1", c.terms)
				f.says("dial 1")
				e := f.race.Connected(f.start, f.dials[1])
				f.client.Given(e, nil)
				var want []*removal.Lifetime
				if c.known {
					want = []*removal.Lifetime{f.claim.Lifetime, e.Lifetime()}
				}
				exported := f.client.Export()
				adopted := Adopt(f.client.base, &exported, engine.Place{Claim: f.claim, Endpoint: e})
				for who, client := range map[string]*Connection{"it": &f.client, "its successor": &adopted} {
					if got := client.Lifetimes(); !slices.Equal(got, want) || (client.others != nil) != c.known {
						t.Errorf("%s knows %v; want %v", who, got, want)
					}
					client.Forget()
				}
			})
		})
	}
}
