package conformancetest

import (
	"net/netip"
	"strings"
	"testing"

	"kubeproxy/proxy"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// Addresses of services pass to a successor with their listeners, connections and sessions, on one port and beside that of the node.
func TestAddressesOfServicesPassToASuccessor(t *testing.T) {
	for _, bind := range []string{"127.0.0.1", "0.0.0.0"} {
		t.Run(bind, func(t *testing.T) {
			cfg := liveConfig()
			cfg.BindAddress = netip.MustParseAddr(bind)
			nodes := newNodes(t, cfg, 2)
			number := proxytest.FreePort(t)
			at := netip.AddrPortFrom(netip.MustParseAddr("127.77.0.10"), number)
			own, ofNode := registry.Port{Addr: at.Addr(), Number: number}, tcp(number)
			dns := registry.Port{Addr: at.Addr(), Protocol: registry.UDP, Number: number}
			records := []change{
				service("own", own), endpoints("own", served(t, proxytest.Chat("own"))), service("dns", dns), endpoints("dns", servedUDP(t, "dns")),
				service("node", ofNode), endpoints("node", served(t, proxytest.Chat("node"))),
			}
			nodes[0].apply(records...)
			toOwn, toNode := proxytest.TalkTo(t, at), proxytest.TalkTo(t, proxytest.On(number))
			session := proxytest.DialUDP(t, at)
			first := session.Ask(t)
			toOwn.MustSay(t, "hello")
			toNode.MustSay(t, "hello")
			nodes[0].passTo(nodes[1], records...)
			toOwn.MustSay(t, "and again")
			toNode.MustSay(t, "and again")
			if again := session.Ask(t); again != first {
				t.Errorf("the session has become %+v; want %+v", again, first)
			}
			for name, want := range map[string]uint64{"own": 1, "node": 1, "dns": 1} {
				if got := totalsOf(nodes[1], name).Active; got != int64(want) {
					t.Errorf("%s has %d clients in the successor; want %d", name, got, want)
				}
			}
			proxytest.TalkTo(t, at).MustSay(t, "hello")
			proxytest.TalkTo(t, proxytest.On(number)).MustSay(t, "hello")
			nodes[1].apply(noService("own"), noService("dns"))
			nodes[1].apply(records[:2]...) // beside a listener of the predecessor
			proxytest.TalkTo(t, at).MustSay(t, "hello")
		})
	}
}

// A predecessor whose addresses an older successor does not know is not taken over by it: to that the listeners are bound elsewhere.
func TestAListenerAtAnAddressSaysWhereItIsBound(t *testing.T) {
	onEachEngine(t, func(t *testing.T, cfg proxy.Config) {
		nodes := newNodes(t, cfg, 2)
		port := registry.Port{Addr: netip.MustParseAddr("127.77.0.10"), Number: proxytest.FreePort(t)}
		nodes[0].apply(service("web", port), endpoints("web", served(t, proxytest.Identify("one"))))
		items, err := nodes[0].Listeners()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(items[1].Body), string(port.Addr.AsSlice())) {
			t.Errorf("the message %q does not name the address", items[1].Body)
		}
		nodes[0].Thaw()
	})
}
