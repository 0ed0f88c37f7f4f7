package rotation

import (
	"net/netip"
	"testing"

	"kubeproxy/registry"
)

// What the page, the metrics and the alerts say of a service follows from what its clients get, and from nothing else.
func TestTheConditionIsWhatNewClientsGet(t *testing.T) {
	fail := func(positions ...int) func(*testing.T, *Rotation) {
		return func(_ *testing.T, r *Rotation) {
			for _, i := range positions {
				r.Endpoints()[i].Failed(registry.TCP)
			}
		}
	}
	failCheck := func(positions ...int) func(*testing.T, *Rotation) {
		return func(_ *testing.T, r *Rotation) {
			for _, i := range positions {
				r.Endpoints()[i].stats().health[registry.TCP].Checked(false, 0)
			}
		}
	}
	weigh := func(weights ...int) func(*testing.T, *Rotation) {
		return func(t *testing.T, r *Rotation) { setWeights(t, r, weights...) }
	}
	forbid := func(_ *testing.T, r *Rotation) {
		r.rules.Allowed = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	}
	for _, c := range []struct {
		name  string
		fault []func(*testing.T, *Rotation)
		want  Condition
	}{
		{"all is well", []func(*testing.T, *Rotation){weigh(1, 1)}, Served},
		{"there are no endpoints", nil, NoEndpoints},
		{"all have weight 0", []func(*testing.T, *Rotation){weigh(0, 0)}, ZeroWeight},
		{"one has weight 0", []func(*testing.T, *Rotation){weigh(0, 1)}, Served},
		{"the one with a weight fails", []func(*testing.T, *Rotation){weigh(0, 1), fail(1)}, NoAnswer},
		{"the one of weight 0 fails", []func(*testing.T, *Rotation){weigh(0, 1), fail(0)}, Served},
		{"the one with a weight fails its checks", []func(*testing.T, *Rotation){weigh(0, 1), failCheck(1)}, ChecksFail},
		{"one fails", []func(*testing.T, *Rotation){weigh(1, 1), fail(0)}, Served},
		{"all fail", []func(*testing.T, *Rotation){weigh(1, 1), fail(0, 1)}, NoAnswer},
		{"one fails its checks", []func(*testing.T, *Rotation){weigh(1, 1), failCheck(0)}, Served},
		{"all fail their checks", []func(*testing.T, *Rotation){weigh(1, 1), failCheck(0, 1)}, ChecksFail},
		{"one fails its checks, the other clients", []func(*testing.T, *Rotation){weigh(1, 1), failCheck(0), fail(1)}, ChecksFail},
		{"all fail their checks and clients", []func(*testing.T, *Rotation){weigh(1, 1), failCheck(0, 1), fail(0, 1)}, NoAnswer},
		{"none is allowed", []func(*testing.T, *Rotation){forbid, weigh(1, 1)}, NotAllowed},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := numbered()
			for i, fault := range c.fault {
				fault(t, r)
				if last := i == len(c.fault)-1; last && r.Status().Condition != c.want { // while the set sleeps, if no client or check has come
					t.Errorf("before the first client it is %v; want %v", r.Status().Condition, c.want)
				}
			}
			choice := r.Choose(registry.TCP)
			_, given := choice.Next()
			if got := r.Status().Condition; got != c.want {
				t.Errorf("with clients it is %v; want %v", got, c.want)
			}
			if turned := c.want == NoEndpoints || c.want == ZeroWeight; given == turned { // one that is not allowed is given, to say why
				t.Errorf("a client is given an endpoint: %t", given)
			}
		})
	}
}
