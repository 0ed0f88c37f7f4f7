package conformancetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// What checks have found goes over, so these successors make none of their own.

func TestASuccessorGivesNoClientToAnEndpointWhoseChecksFail(t *testing.T) {
	first, second := liveConfig(), liveConfig()
	first.Checks.Interval, first.Checks.Fall, second.Checks.Interval = checkEvery, 2, time.Hour
	nodes := newNodesOf(t, first, second)
	all, addrs := sites(t, 200, 503, 200)
	port := proxytest.FreePort(t)
	records := []change{checkedAsFlagsSay("web", tcp(port), "/healthz"), endpoints("web", addrs...)}
	nodes[0].apply(records...)
	nodes[0].failing(1)
	nodes[0].passTo(nodes[1], records...)
	for range 9 {
		if who := proxytest.TalkTo(t, proxytest.On(port)).MustSay(t, "hello"); who == all[1].name {
			t.Errorf("a client was given the endpoint whose checks fail")
		}
	}
	if c := nodes[1].balancer.Checker.Counts(); c.Failing != 1 || c.Unknown != 0 || c.Passed+c.Failed != 0 {
		t.Errorf("the successor has counted %+v", c)
	}
	for _, e := range nodes[1].balancer.Status() {
		if fails := e.Addr == addrs[1]; fails != (e.CheckError != "") || fails == e.FailingSince.IsZero() {
			t.Errorf("%v: failing since %v: %q", e.Addr, e.FailingSince, e.CheckError)
		}
	}
}

// TestAConnectionThatBeganWhileAllChecksFailedGoesOverToItsEndpoint: to the one that is there, and not to one that was removed.
func TestAConnectionThatBeganWhileAllChecksFailedGoesOverToItsEndpoint(t *testing.T) {
	for _, lent := range []bool{true, false} {
		t.Run(fmt.Sprint("lent: ", lent), func(t *testing.T) {
			first, second := liveConfig(), liveConfig()
			first.Checks.Interval, second.Checks.Interval = checkEvery, time.Hour
			second.OnRemoval = removal.Policy{Close: true}
			nodes := newNodesOf(t, first, second)
			all, addrs := sites(t, 500, 500)
			port := proxytest.FreePort(t)
			records := []change{failing(registry.Failure{Close: true}, checkedAsFlagsSay("web", tcp(port), "/healthz")), endpoints("web", addrs...)}
			nodes[0].apply(records...)
			nodes[0].failing(2)
			talk := proxytest.TalkTo(t, proxytest.On(port))
			own := slices.IndexFunc(all, func(s *site) bool { return s.name == talk.MustSay(t, "hello") })
			passExcept(all, all[own].name)
			nodes[0].failing(1)
			nodes[0].passWith(nodes[1], func() {
				if lent {
					nodes[0].lendTo(nodes[1])
				}
			}, records...)
			talk.MustSay(t, "still here")
			for i, e := range nodes[1].balancer.Status() {
				if has := e.Active == 1; has != (i == own) || e.Addr != addrs[i] {
					t.Errorf("%v has %d connections; the client is at %v", e.Addr, e.Active, addrs[own])
				}
			}
			nodes[1].apply(endpoints("web", addrs[1-own]))
			if _, err := talk.Say("still here"); err == nil {
				t.Error("it goes on although its endpoint was removed, which closes connections")
			}
		})
	}
}

// The successor closes what the predecessor would have closed at its own next check.
func TestAConnectionOfAnEndpointWhoseChecksFailInTheSuccessorFirstIsClosed(t *testing.T) {
	for _, lent := range []bool{true, false} {
		t.Run(fmt.Sprint("lent: ", lent), func(t *testing.T) {
			first, second := liveConfig(), liveConfig()
			first.Checks.Interval, second.Checks.Interval = time.Hour, checkEvery
			nodes := newNodesOf(t, first, second)
			all, addrs := sites(t, 200, 200)
			port := proxytest.FreePort(t)
			records := []change{failing(registry.Failure{Close: true}, checkedAsFlagsSay("web", tcp(port), "/healthz")), endpoints("web", addrs...)}
			nodes[0].apply(records...)
			talks := nodes[0].talkToBoth(proxytest.On(port))
			all[0].status.Store(500)
			nodes[0].passWith(nodes[1], func() {
				if lent {
					nodes[0].lendTo(nodes[1])
				}
				nodes[1].failing(1)
			}, records...)
			if err := proxytest.Discard(talks["web-0"].Conn); !proxytest.IsReset(err) {
				t.Errorf("the client of the endpoint that fails saw %v; want a reset", err)
			}
			talks["web-1"].MustSay(t, "still here")
			proxytest.Eventually(t, func() bool { return totalsOf(nodes[1], "web").Ended[traffic.EndpointFailed] == 1 }, "one connection to end for the checks")
		})
	}
}

func TestTheKernelOfASuccessorCarriesWhatItCarriedBefore(t *testing.T) {
	onAWire(t, func(w *wire) {
		first, second := kernelConfig(), kernelConfig()
		first.Checks.Interval, second.Checks.Interval = checkEvery, time.Hour
		nodes := newNodesOf(t, first, second)
		records := []change{checkedAsFlagsSay("web", tcp(8080), ""), endpoints("web", w.serve("one", "10.77.0.3:9000").Addr, w.serve("two", "10.77.0.4:9000").Addr)}
		nodes[0].apply(records...)
		nodes[0].becomes(kernel.Carried)
		nodes[0].passTo(nodes[1], records...)
		nodes[1].becomes(kernel.Carried)
		if _, err := say(w.dial("tcp", "10.77.0.1:8080")); err != nil {
			t.Error(err)
		}
		if c := nodes[1].balancer.Checker.Counts(); c.Passed+c.Failed != 0 {
			t.Errorf("the successor has counted %+v; want no check", c)
		}
		nodes[1].end()
		if sum := totalsOf(nodes[1], "web"); sum.Begun != 1 || sum.Carried != 1 {
			t.Errorf("%d connections are counted, of them %d in the kernel; want 1 and 1", sum.Begun, sum.Carried)
		}
	})
}

// checkedAsFlagsSay is checkedService with the node's own interval.
func checkedAsFlagsSay(name string, port registry.Port, path string) change {
	return func(b *registry.Batch) {
		checkedService(name, port, registry.Check{Path: path})(b)
		b.Services[named(name)].Asked.Checks.Interval = 0
	}
}
