package positions

import (
	"fmt"
	"net/netip"
	"testing"

	"kubeproxy/registry"
)

// Nodes of different builds must agree, so these values are for ever.
func TestHashesAreTheSameInEveryBuild(t *testing.T) {
	mapped := netip.MustParseAddr("::ffff:192.0.2.1")
	if ClientHash(mapped) != ClientHash(mapped.Unmap()) {
		t.Error("an IPv4 address has two hashes")
	}
	host := registry.Addr{IP: netip.AddrPortFrom(netip.Addr{}, 80), Host: "web-1.example"}
	got := fmt.Sprintf("%x %x %x %x", ClientHash(mapped), ClientHash(netip.MustParseAddr("2001:db8::1")), EndpointHash(registry.Addr{IP: netip.MustParseAddrPort("10.0.0.1:80")}), EndpointHash(host))
	if want := "d21f2ca35c221d8d 4de897d954fd23d5 4afeb18b0afd4d0a 4ec11ff64bd3245a"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}
