//go:build linux

package portable

import (
	"net"
	"net/netip"
	"testing"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
)

// A broadcast is received, and answered from an address that is ours: a broadcast address is no
// address to send from.
func TestABroadcastIsAnsweredFromAnAddressOfOurs(t *testing.T) {
	e := newUDPEngine(t, engine.Config{BindAddress: netip.IPv4Unspecified()})
	s := serveUDP(t, e, enginetest.Identity(t, "1"))
	client := proxytest.NewUDPSocket(t) // package net allows every UDP socket to broadcast
	to := netip.AddrPortFrom(netip.MustParseAddr("127.255.255.255"), s.Addr.Port())
	from := proxytest.AskFrom(t, client, to)
	if want := proxytest.On(s.Addr.Port()); from != want {
		t.Errorf("answered from %v; want %v", from, want)
	}
}

// Every link-local address of this machine, if it has one: there the interface counts.
func TestRepliesToLinkLocalClientsStayOnTheirLink(t *testing.T) {
	e := newUDPEngine(t, engine.Config{BindAddress: netip.IPv6Unspecified()})
	s := serveUDP(t, e, enginetest.Identity(t, "1"))
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs {
			ip, ok := netip.AddrFromSlice(a.(*net.IPNet).IP)
			if !ok || !ip.Is6() || !ip.IsLinkLocalUnicast() {
				continue
			}
			proxytest.DialUDP(t, netip.AddrPortFrom(ip.WithZone(i.Name), s.Addr.Port())).Ask(t)
		}
	}
}
