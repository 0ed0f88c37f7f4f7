package conformancetest

import (
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
)

// A client may ask all nodes of its link: ff02::1. No reply can leave from there: it leaves from an address of the node's on that link.
func (s suite) TestAClientThatAsksAllNodesOfItsLinkIsAnswered(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	peer := proxytest.NewPeer(t)
	cfg := s.config()
	cfg.BindAddress = netip.IPv4Unspecified()
	n := newNode(t, cfg)
	to := netip.AddrPortFrom(netip.MustParseAddr("ff02::1"), udpThrough(t, n, servedUDP(t, "dns")).Port())
	var client *net.UDPConn
	peer.Do(t, func() error {
		link, err := net.InterfaceByName("there")
		if err != nil {
			return err
		}
		to = netip.AddrPortFrom(to.Addr().WithZone(strconv.Itoa(link.Index)), to.Port())
		client, err = net.ListenUDP("udp6", new(net.UDPAddr))
		return err
	})
	defer client.Close()
	var from netip.AddrPort
	proxytest.Eventually(t, func() bool { // once both have their addresses
		if _, err := client.WriteToUDPAddrPort([]byte("hello"), to); err != nil {
			return false
		}
		if err := client.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		var err error
		_, from, err = client.ReadFromUDPAddrPort(make([]byte, 512))
		return err == nil
	}, "an answer")
	if !from.Addr().IsLinkLocalUnicast() || from.Port() != to.Port() {
		t.Errorf("answered from %v", from)
	}
}
