package rotation

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/traffic"
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
	meet := func(why traffic.Reason, positions ...int) func(*testing.T, *Rotation) {
		return func(_ *testing.T, r *Rotation) {
			for _, i := range positions {
				r.Endpoints()[i].setAside(registry.TCP, why)
			}
		}
	}
	weigh := func(weights ...int) func(*testing.T, *Rotation) {
		return func(t *testing.T, r *Rotation) { setWeights(t, r, weights...) }
	}
	forbid := func(_ *testing.T, r *Rotation) {
		r.rules.Allowed = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	}
	local := func(_ *testing.T, r *Rotation) {
		r.rules.Node.Name = "here"
		r.SetTerms(&registry.Terms{Local: true}, health.ClientsOf(registry.TCP, true))
	}
	refuse := func(_ *testing.T, r *Rotation) {
		r.terms.Store(&registry.Terms{Failure: registry.Failure{Refuse: true}})
	}
	fill := func(positions ...int) func(*testing.T, *Rotation) {
		return func(_ *testing.T, r *Rotation) {
			r.terms.Store(&registry.Terms{Limits: registry.Limits{PerEndpoint: 1}, Failure: r.terms.Load().Failure})
			for _, i := range positions {
				give(r.Endpoints()[i])
			}
		}
	}
	for _, c := range []struct {
		name  string
		fault []func(*testing.T, *Rotation)
		want  health.Condition
	}{
		{"all is well", []func(*testing.T, *Rotation){weigh(1, 1)}, health.Served},
		{"there are no endpoints", nil, health.NoEndpoints},
		{"all have weight 0", []func(*testing.T, *Rotation){weigh(0, 0)}, health.ZeroWeight},
		{"one has weight 0", []func(*testing.T, *Rotation){weigh(0, 1)}, health.Served},
		{"the one with a weight fails", []func(*testing.T, *Rotation){weigh(0, 1), fail(1)}, health.NoAnswer},
		{"the one of weight 0 fails", []func(*testing.T, *Rotation){weigh(0, 1), fail(0)}, health.Served},
		{"the one with a weight fails its checks", []func(*testing.T, *Rotation){weigh(0, 1), failCheck(1)}, health.ChecksFail},
		{"one fails", []func(*testing.T, *Rotation){weigh(1, 1), fail(0)}, health.Served},
		{"all fail", []func(*testing.T, *Rotation){weigh(1, 1), fail(0, 1)}, health.NoAnswer},
		{"one fails its checks", []func(*testing.T, *Rotation){weigh(1, 1), failCheck(0)}, health.Served},
		{"all fail their checks", []func(*testing.T, *Rotation){weigh(1, 1), failCheck(0, 1)}, health.ChecksFail},
		{"one fails its checks, the other clients", []func(*testing.T, *Rotation){weigh(1, 1), failCheck(0), fail(1)}, health.ChecksFail},
		{"all fail their checks and clients", []func(*testing.T, *Rotation){weigh(1, 1), failCheck(0, 1), fail(0, 1)}, health.NoAnswer},
		{"all fail their checks, and the service refuses then", []func(*testing.T, *Rotation){refuse, weigh(1, 1), failCheck(0, 1)}, health.AllFailed},
		{"all fail their checks and clients, and the service refuses then", []func(*testing.T, *Rotation){refuse, weigh(1, 1), failCheck(0, 1), fail(0, 1)}, health.AllFailed},
		{"one fails its checks, the other clients, and the service refuses then", []func(*testing.T, *Rotation){refuse, weigh(1, 1), failCheck(0), fail(1)}, health.NoAnswer},
		{"one fails its checks, and the service refuses then", []func(*testing.T, *Rotation){refuse, weigh(1, 1), failCheck(0)}, health.Served},
		{"the name of one is not resolved", []func(*testing.T, *Rotation){weigh(1, 1), meet(traffic.NameFailed, 0)}, health.Served},
		{"the names of all are not resolved", []func(*testing.T, *Rotation){weigh(1, 1), meet(traffic.NameFailed, 0, 1)}, health.NameFailed},
		{"the name of one is not resolved, and the other fails", []func(*testing.T, *Rotation){weigh(1, 1), meet(traffic.NameFailed, 0), fail(1)}, health.NoAnswer},
		{"the name of one is not resolved, and the other fails its checks", []func(*testing.T, *Rotation){weigh(1, 1), meet(traffic.NameFailed, 0), failCheck(1)}, health.ChecksFail},
		{"all are listeners of the proxy", []func(*testing.T, *Rotation){weigh(1, 1), meet(traffic.OwnListener, 0, 1)}, health.OwnListener},
		{"all are listeners of the proxy, and fail their checks", []func(*testing.T, *Rotation){weigh(1, 1), failCheck(0, 1), meet(traffic.OwnListener, 0, 1)}, health.OwnListener},
		{"one is a listener of the proxy, and the name of the other is not resolved", []func(*testing.T, *Rotation){weigh(1, 1), meet(traffic.OwnListener, 0), meet(traffic.NameFailed, 1)}, health.NameFailed},
		{"the names of all stand for addresses that are not allowed", []func(*testing.T, *Rotation){weigh(1, 1), meet(traffic.EndpointNotAllowed, 0, 1)}, health.NotAllowed},
		{"the one with a weight is a listener of the proxy", []func(*testing.T, *Rotation){weigh(0, 1), meet(traffic.OwnListener, 1)}, health.OwnListener},
		{"none is allowed", []func(*testing.T, *Rotation){forbid, weigh(1, 1)}, health.NotAllowed},
		{"one is full", []func(*testing.T, *Rotation){weigh(1, 1), fill(0)}, health.Served},
		{"all are full", []func(*testing.T, *Rotation){weigh(1, 1), fill(0, 1)}, health.AllFull},
		{"the one with a weight is full", []func(*testing.T, *Rotation){weigh(0, 1), fill(1)}, health.AllFull},
		{"one is full, and the other fails", []func(*testing.T, *Rotation){weigh(1, 1), fill(0), fail(1)}, health.AllFull},
		{"one is full, and the other fails its checks", []func(*testing.T, *Rotation){weigh(1, 1), fill(0), failCheck(1)}, health.AllFull},
		{"all are full, and fail", []func(*testing.T, *Rotation){weigh(1, 1), fill(0, 1), fail(0, 1)}, health.AllFull},
		{"the policy is Local, and none is on the node", []func(*testing.T, *Rotation){local, weigh(1, 1)}, health.NoLocal},
		{"the policy is Local, and none is on the node or allowed", []func(*testing.T, *Rotation){local, forbid, weigh(1, 1)}, health.NoLocal},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := numbered()
			for i, fault := range c.fault {
				fault(t, r)
				if last := i == len(c.fault)-1; last && r.Status().Condition != c.want { // while the set sleeps, if no client or check has come
					t.Errorf("before the first client it is %v; want %v", r.Status().Condition, c.want)
				}
			}
			choice := r.ChooseFor(registry.TCP, netip.Addr{}, r.terms.Load(), nil)
			_, given := choice.Next()
			if got := r.Status().Condition; got != c.want {
				t.Errorf("with clients it is %v; want %v", got, c.want)
			}
			if turned := c.want == health.NoEndpoints || c.want == health.ZeroWeight || c.want == health.AllFailed || c.want == health.AllFull || c.want == health.NoLocal; given == turned { // one that is not allowed is given, to say why
				t.Errorf("a client is given an endpoint: %t", given)
			}
		})
	}
}

// An endpoint that cannot be used is offered again after a few seconds. Why is known until a client or a check can use it.
func TestWhyEndpointsCannotBeUsedIsKnownUntilTheyCan(t *testing.T) {
	for name, use := range map[string]func(*Choice, *Endpoint){
		"a client is served":           func(c *Choice, e *Endpoint) { c.Reached(e) },
		"the endpoint does not answer": func(c *Choice, e *Endpoint) { c.Failed(e) },
		"a check passes":               func(_ *Choice, e *Endpoint) { e.Passed(registry.TCP) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := numbered(1)
				first := r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
				e, _ := first.Next()
				first.Unusable(e, traffic.OwnListener)
				time.Sleep(2 * health.AsideFor)
				next := r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
				if again, ok := next.Next(); !ok || again != e {
					t.Error("it is not offered again")
				}
				if got := r.Status().Condition; got != health.OwnListener {
					t.Errorf("while the next client tries it, the condition is %v; want %v", got, health.OwnListener)
				}
				use(&next, e)
				if got := r.Status().Condition; got == health.OwnListener {
					t.Errorf("once it can be used, the condition is %v", got)
				}
			})
		})
	}
}

// Clients of one service may get different things: what is said of a port is about those that come to it, and what is said of all is the worst.
func TestTheConditionIsThatOfTheClientsOfAPort(t *testing.T) {
	refuse := &registry.Terms{Failure: registry.Failure{Refuse: true}}
	both := health.ClientsOf(registry.TCP, false) | health.ClientsOf(registry.UDP, false)
	type port struct {
		protocol registry.Protocol
		local    bool
		want     health.Condition
		failing  int
		over     string
	}
	for _, c := range []struct {
		name    string
		terms   *registry.Terms
		clients health.Clients
		fault   func(*Rotation)
		want    health.Condition
		ports   []port
	}{
		{"all checks over TCP fail, and clients are refused then", refuse, both, func(r *Rotation) {
			for _, e := range r.Endpoints() {
				e.stats().health[registry.TCP].Checked(false, 0)
			}
		}, health.AllFailed, []port{{registry.TCP, false, health.AllFailed, 2, " over tcp"}, {registry.UDP, false, health.Served, 0, " over udp"}}},
		{"one endpoint fails over TCP, the other over UDP", registry.NoTerms, both, func(r *Rotation) {
			r.Endpoints()[0].Failed(registry.TCP)
			r.Endpoints()[1].Failed(registry.UDP)
		}, health.Served, []port{{registry.TCP, false, health.Served, 1, ""}, {registry.UDP, false, health.Served, 1, ""}}},
		{"all fail over both", registry.NoTerms, both, func(r *Rotation) {
			for _, e := range r.Endpoints() {
				e.Failed(registry.TCP)
				e.Failed(registry.UDP)
			}
		}, health.NoAnswer, []port{{registry.TCP, false, health.NoAnswer, 2, ""}, {registry.UDP, false, health.NoAnswer, 2, ""}}},
		{"one port gives endpoints on the node only", registry.NoTerms, health.ClientsOf(registry.TCP, false) | health.ClientsOf(registry.TCP, true), func(*Rotation) {},
			health.NoLocal, []port{{registry.TCP, false, health.Served, 0, ""}, {registry.TCP, true, health.NoLocal, 0, ""}}},
		{"one port does, and all endpoints fail", registry.NoTerms, health.ClientsOf(registry.TCP, false) | health.ClientsOf(registry.TCP, true), func(r *Rotation) {
			for _, e := range r.Endpoints() {
				e.Failed(registry.TCP)
			}
		}, health.NoAnswer, []port{{registry.TCP, false, health.NoAnswer, 2, ""}, {registry.TCP, true, health.NoLocal, 2, ""}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := numbered()
			r.rules.Node.Name = "here"
			setWeights(t, r, 1, 1)
			r.SetTerms(c.terms, c.clients)
			c.fault(r)
			all := r.Status()
			if all.Condition != c.want {
				t.Errorf("the condition is %v; want %v", all.Condition, c.want)
			}
			for _, p := range c.ports {
				got := all.Of(p.protocol, p.local)
				if got.Condition != p.want || got.Failing != p.failing || len(got.Examples) != p.failing || got.Over != p.over {
					t.Errorf("%v, local %t: %+v; want %v%s, and %d endpoints that fail", p.protocol, p.local, got, p.want, p.over, p.failing)
				}
				terms := *c.terms
				terms.Local = p.local
				if _, away := r.TurnsAway(p.protocol, &terms); away != p.want.TurnsAway() {
					t.Errorf("%v, local %t: clients are turned away: %t; the condition is %v", p.protocol, p.local, away, p.want)
				}
			}
		})
	}
}
