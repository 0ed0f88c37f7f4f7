package conformancetest

import (
	"net/netip"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// What clients of a service see that wants them to come back to the same endpoint. When they are
// remembered and when not, is tested closer to home: affinity_test.go.

// sticky says that a service offers one port, and for how long clients are remembered; 0: not at all.
func sticky(name string, timeout time.Duration, ports ...registry.Port) change {
	return func(b *registry.Batch) {
		service(name, ports...)(b)
		if timeout > 0 {
			b.Services[named(name)].Asked = &registry.Terms{Affinity: registry.AffinityClientIP, AffinityTimeout: timeout}
		}
	}
}

var visitors = []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3"), netip.MustParseAddr("127.0.0.4")}

func (s suite) TestClientsOfAServiceWithAffinityComeBackToTheirEndpoint(t *testing.T) {
	proxytest.NeedsAddresses(t, visitors[0].String(), visitors[1].String(), visitors[2].String())
	for _, c := range []struct {
		name  string
		port  func(uint16) registry.Port
		serve func(t *testing.T, name string) (at registry.Addr, dies func())
		ask   func(t *testing.T, client netip.Addr, at netip.AddrPort) string
	}{
		{"TCP", tcp, func(t *testing.T, name string) (registry.Addr, func()) {
			s := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify(name))
			return s.Addr, s.Close
		}, func(t *testing.T, client netip.Addr, at netip.AddrPort) string {
			answer, err := proxytest.AskTCPFrom(client, at)
			if err != nil {
				t.Fatalf("%s → %s: %v", client, at, err)
			}
			return answer
		}},
		{"UDP", udp, func(t *testing.T, name string) (registry.Addr, func()) {
			s := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP(name))
			return s.Addr, s.Close
		}, func(t *testing.T, client netip.Addr, at netip.AddrPort) string {
			return proxytest.DialUDPFrom(t, client, at).Ask(t).Name // from another port, and so another session, each time
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := s.config()
			n := newNode(t, cfg)
			port := proxytest.FreePort(t)
			at := proxytest.On(port)
			all := make(map[string]registry.Addr)
			dies := make(map[string]func())
			for _, name := range []string{"1", "2", "3"} {
				all[name], dies[name] = c.serve(t, name)
			}
			n.apply(sticky("web", time.Hour, c.port(port)), endpoints("web", all["1"], all["2"], all["3"]))
			had := make(map[netip.Addr]string)
			for _, client := range visitors {
				had[client] = c.ask(t, client, at)
			}
			keep := func(when string) {
				t.Helper()
				for range 3 {
					for _, client := range visitors {
						if got := c.ask(t, client, at); got != had[client] {
							t.Errorf("%s: %s had %s and was given %s", when, client, had[client], got)
						}
					}
				}
			}
			if had[visitors[0]] == had[visitors[1]] || had[visitors[1]] == had[visitors[2]] {
				t.Errorf("newcomers were given %v; want each another", had)
			}
			keep("at peace")

			n.apply(endpoints("web", all["3"], all["2"], all["1"]), service("other", c.port(proxytest.FreePort(t))))
			keep("after the endpoints were put into another order")
			n.apply(sticky("web", 2*time.Hour, c.port(port)))
			keep("after the timeout was changed")

			lost := visitors[0]
			dies[had[lost]]()
			before := had[lost]
			if had[lost] = c.ask(t, lost, at); had[lost] == before {
				t.Fatalf("answered by %s, which is dead", before)
			}
			keep("after one endpoint has died")

			lost = visitors[1]
			before = had[lost]
			delete(all, before)
			var left []registry.Addr
			for _, addr := range all {
				left = append(left, addr)
			}
			n.apply(endpoints("web", left...))
			had[lost] = c.ask(t, lost, at)
			for _, client := range visitors { // who had the dead one as second choice moves as well
				had[client] = c.ask(t, client, at)
			}
			keep("after one endpoint has left")
		})
	}
}

// Affinity decides only which endpoint a new connection gets: a connection keeps its own.
func (s suite) TestAskingForAffinityDisturbsNoSession(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	port := proxytest.FreePort(t)
	n.apply(service("dns", udp(port)), endpoints("dns", servedUDP(t, "1"), servedUDP(t, "2")))
	one, two := proxytest.DialUDP(t, proxytest.On(port)), proxytest.DialUDP(t, proxytest.On(port))
	first, second := one.Ask(t), two.Ask(t)
	for _, timeout := range []time.Duration{time.Hour, time.Minute, 0} {
		n.apply(sticky("dns", timeout, udp(port)))
		if got := one.Ask(t); got != first {
			t.Errorf("affinity of %v: a client had %v and has %v", timeout, first, got)
		}
		if got := two.Ask(t); got != second {
			t.Errorf("affinity of %v: another client had %v and has %v", timeout, second, got)
		}
	}
}
