package conformancetest

import (
	"testing"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

func (s suite) TestClientsLeaveTheirZoneWithTheCheckThatFailsAndReturnWithTheOneThatPasses(t *testing.T) {
	cfg := s.config()
	onNode(&cfg)
	n := newNode(t, cfg)
	all, addrs := sites(t, 200, 200, 200)
	port := proxytest.FreePort(t)
	n.apply(checkedService("web", tcp(port), registry.Check{Path: "/healthz"}),
		inZones("web", zoned{"east", addrs[0]}, zoned{"west", addrs[1]}, zoned{"east", addrs[2]}))
	n.failing(0)
	expect := func(when string, want ...string) {
		t.Helper()
		seen := make(map[string]bool)
		for range 8 {
			seen[proxytest.TalkTo(t, proxytest.On(port)).MustSay(t, "hello")] = true
		}
		for _, name := range want {
			if !seen[name] || len(seen) != len(want) {
				t.Errorf("%s clients were given %v; want %v", when, seen, want)
			}
		}
	}
	expect("at first", "web-0", "web-2")
	all[0].status.Store(500)
	n.failing(1)
	expect("when one in the zone fails its checks", "web-2")
	all[2].status.Store(500)
	n.failing(2)
	expect("when both do", "web-1")
	all[0].status.Store(200)
	n.failing(1)
	expect("when one passes them again", "web-0")
}
