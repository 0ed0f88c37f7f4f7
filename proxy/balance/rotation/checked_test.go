package rotation

import (
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/registry"
)

// An endpoint that failed a client and passes its checks is well again without another client: while it restarted, fewer checks than
// -endpoint_check_fall had failed. Its time to return has to come first, or a check would undo what clients have just found.
func TestAPassingCheckStandsForTheClientThatFindsAnEndpointBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := numbered(1, 2).awake().endpoints[0]
		failing := func() bool { return !e.Status().FailingSince.IsZero() }
		e.Passed(registry.TCP)
		if e.known.Load() != nil {
			t.Error("a check of an endpoint that never failed leaves statistics")
		}
		e.Failed(registry.TCP)
		e.Passed(registry.TCP)
		if !failing() || !e.skips(registry.TCP, false) {
			t.Error("a check ended the ejection before its time")
		}
		time.Sleep(health.FirstEjection)
		e.Passed(registry.UDP)
		if !failing() {
			t.Error("a check over another protocol ended the ejection")
		}
		e.Passed(registry.TCP)
		if failing() || e.skips(registry.TCP, false) {
			t.Error("its time to return has come, a check passed, and it is still said to fail")
		}
		e.Failed(registry.TCP) // counts from the beginning
		if got := time.Until(e.Status().EjectedUntil); got != health.FirstEjection {
			t.Errorf("it is ejected for %v, want %v", got, health.FirstEjection)
		}
	})
}

// checkedUDP is what [Endpoint.Checked] does without a slow start.
func checkedUDP(e *Endpoint, passes bool) {
	e.stats().health[registry.UDP].Checked(passes, 0)
	e.follow(registry.UDP)
}

// Another endpoint is one that a new client may be given: not one whose weight is 0, that is ejected, or whose checks fail as well.
func TestClientsLeaveAnEndpointWhoseChecksFailOnlyForOneThatIsReady(t *testing.T) {
	for _, c := range []struct {
		name   string
		others func(r *Rotation)
		weight int // of the other one
		left   bool
	}{
		{"the other passes", func(*Rotation) {}, 1, true},
		{"its weight is 0", func(*Rotation) {}, 0, false},
		{"it has just refused", func(r *Rotation) { r.Endpoints()[1].Failed(registry.UDP) }, 1, false},
		{"its checks fail", func(r *Rotation) { checkedUDP(r.Endpoints()[1], false) }, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // or an ejection would end
				r := weighted(t, 1, c.weight)
				e := r.Endpoints()[0]
				e.Answered(registry.UDP)
				choice := r.ChooseFor(registry.UDP, netip.Addr{}, registry.NoTerms, nil)
				if choice.Leaves(e) {
					t.Error("clients leave an endpoint that does not fail its checks")
				}
				checkedUDP(e, false)
				c.others(r)
				if got := choice.Leaves(e); got != c.left {
					t.Errorf("clients leave it: %v; want %v", got, c.left)
				}
				setWeights(t, r, 0, c.weight)
				if got := choice.Leaves(e); got != c.left {
					t.Errorf("its weight is 0, and clients leave it: %v; want %v", got, c.left)
				}
				checkedUDP(e, true)
				if choice.Leaves(e) {
					t.Error("clients leave an endpoint of weight 0 that passes its checks")
				}
			})
		})
	}
}

// What keeps a set awake, as checks and overrides do, keeps one without endpoints awake as well.
func TestTheLastEndpointOfAServiceMayGo(t *testing.T) {
	checked := numbered(1)
	checked.checks = new([2]check)
	for name, r := range map[string]*Rotation{
		"with checks":         checked,
		"with an override":    numbered(1),
		"chosen at its first": numbered(1),
	} {
		overrides := map[registry.Addr]int(nil)
		switch name {
		case "with an override":
			overrides = map[registry.Addr]int{addr(1): 0}
		case "chosen at its first":
			chosen(t, r, 1)
		}
		r.ReplaceOverriding(registry.PortAddrs{}, "", overrides)
		r.Status()
		r.EndpointStatus()
		c := r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
		if e, ok := c.Next(); ok {
			t.Errorf("%s: a client was given %v of no endpoints", name, e)
		}
		r.Replace(registry.PortAddrs{Addrs: registry.NewAddrs(addr(2))}, "")
		if got := chosen(t, r, 1); len(got) != 1 || got[0] != 2 {
			t.Errorf("%s: a client after the return of endpoints was given %v, want endpoint 2", name, got)
		}
	}
}

// A client may have chosen the endpoint before its checks failed, and reach it after that.
func TestAConnectionThatBeginsAtAFailedEndpointIsClosed(t *testing.T) {
	fails := func(e *Endpoint) { e.stats().health[registry.TCP].Checked(false, 0); e.follow(registry.TCP) }
	for _, c := range []struct {
		name   string
		how    registry.Failure
		others bool // pass
		closed bool
	}{
		{"the service says nothing", registry.Failure{}, true, false},
		{"it closes, and another endpoint passes", registry.Failure{Close: true}, true, true},
		{"it closes, and all fail: clients are given all", registry.Failure{Close: true}, false, false},
		{"it closes and refuses, and all fail", registry.Failure{Close: true, Refuse: true}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := numbered(1, 2)
			r.terms.Store(&registry.Terms{Failure: c.how})
			all := r.Endpoints()
			was := all[0].Lifetime()
			fails(all[0])
			if !c.others {
				fails(all[1])
			}
			if got := all[0].Lifetime().IsOver(); got != c.closed {
				t.Errorf("it begins under a lifetime that is over: %t", got)
			}
			if all[1].Lifetime().IsOver() && c.others || was.IsOver() {
				t.Error("other connections are closed")
			}
		})
	}
}

// Where all endpoints fail, clients are given them all the same. What a check finds again is no news, and ends none of those connections.
func TestConnectionsThatBeganAfterAnEndpointFailedGoOn(t *testing.T) {
	r := numbered(1)
	r.rules.Checker = checks.New(checks.Settings{}, nil, nil) // which does not run
	e := r.Endpoints()[0]
	r.terms.Store(&registry.Terms{Failure: registry.Failure{Close: true}})
	before := e.Lifetime()
	e.Checked(registry.TCP, false)
	after := e.Lifetime()
	e.Checked(registry.TCP, false)
	if !before.IsOver() || after.IsOver() {
		t.Errorf("what began before the checks failed is over: %t; what began after: %t; want true, false", before.IsOver(), after.IsOver())
	}
}

// Its checks may fail while a client that has reached it asks.
func TestAnEndpointAlwaysHasALifetime(t *testing.T) {
	r := numbered(1)
	e := r.Endpoints()[0]
	r.terms.Store(&registry.Terms{Failure: registry.Failure{Close: true}})
	var working sync.WaitGroup
	defer working.Wait()
	done := make(chan struct{})
	defer close(done)
	working.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				e.closeConnections()
			}
		}
	})
	for range 100_000 {
		if e.Lifetime() == nil {
			t.Fatal("it has none")
		}
	}
}

// A new set is made, and then can be found. Who has the health of an endpoint change in between finds the old one.
func TestAnEndpointThatPassesWhileItsSetIsMadeIsReady(t *testing.T) {
	r := numbered(1)
	e, old := r.Endpoints()[0], r.set.Load()
	checkedUDP(e, false)
	if old.seenBy(0).hasReady(registry.UDP) {
		t.Fatal("an endpoint whose checks fail is ready")
	}
	made := r.after(old, &endpointSet{addrs: registry.NewAddrs(addrs(1)...)}, map[*Endpoint]int{e: 0})
	checkedUDP(e, true)
	r.put(made)
	if !made.seenBy(0).hasReady(registry.UDP) {
		t.Error("the endpoint passes, and is not ready")
	}
}
