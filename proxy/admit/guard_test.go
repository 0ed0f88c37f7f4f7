package admit

import (
	"net/netip"
	"testing"

	"kubeproxy/registry"
)

func TestOwnListenersAreRecognisedHoweverTheyAreAddressed(t *testing.T) {
	for _, c := range []struct {
		bind, to string
		want     bool
	}{
		{"0.0.0.0", "127.0.0.1:80", true},
		{"0.0.0.0", "127.1.2.3:80", true},
		{"0.0.0.0", "[::1]:80", true}, // the IPv4 wildcard listens on both families, as in v0.4
		{"0.0.0.0", "0.0.0.0:80", true},
		{"0.0.0.0", "[::]:80", true},
		{"0.0.0.0", "[::ffff:127.0.0.1]:80", true},
		{"0.0.0.0", "192.0.2.1:80", false}, // a documentation address
		{"0.0.0.0", "127.0.0.1:81", false},
		{"127.0.0.1", "127.0.0.1:80", true},
		{"127.0.0.1", "127.0.0.2:80", false},
		{"127.0.0.1", "0.0.0.0:80", true},
		{"127.0.0.1", "[::ffff:127.0.0.1]:80", true},
		{"127.0.0.1", "[::1]:80", false},
		{"192.0.2.1", "127.0.0.1:80", false},
		{"192.0.2.1", "192.0.2.1:80", true},
		{"fe80::1%lo", "[fe80::1%lo]:80", true},
	} {
		own := NewOwnPorts(netip.MustParseAddr(c.bind))
		own.Add(registry.ListenerID{Protocol: registry.TCP, Number: 80})
		to := netip.MustParseAddrPort(c.to)
		if got := own.Contains(registry.TCP, to); got != c.want {
			t.Errorf("bound to %s: %s is ours: %v; want %v", c.bind, c.to, got, c.want)
		}
		if own.Contains(registry.UDP, to) {
			t.Errorf("bound to %s over tcp only: %s is ours over udp", c.bind, c.to)
		}
		own.Remove(registry.ListenerID{Protocol: registry.TCP, Number: 80})
		if own.Contains(registry.TCP, to) {
			t.Errorf("bound to %s: %s is still ours after the port was closed", c.bind, c.to)
		}
	}
}

func TestAnAddressOfAnInterfaceIsOurs(t *testing.T) {
	own := NewOwnPorts(netip.IPv4Unspecified())
	if !own.IsLocal(netip.MustParseAddr("127.0.0.1")) {
		t.Error("127.0.0.1 is on no interface of this machine")
	}
}

func TestAConnectionToAnAddressThatHasJustBecomeOursIsRecognised(t *testing.T) {
	own := NewOwnPorts(netip.IPv4Unspecified())
	own.Add(registry.ListenerID{Protocol: registry.TCP, Number: 80})
	ours := netip.MustParseAddrPort("127.0.0.1:80")
	for _, c := range []struct {
		local string
		want  bool
	}{{"127.0.0.1:40000", true}, {"192.0.2.7:40000", false}} {
		if got := own.Reached(registry.TCP, netip.MustParseAddrPort(c.local), ours); got != c.want {
			t.Errorf("connected from %s to %s: %v; want %v", c.local, ours, got, c.want)
		}
	}
	if elsewhere := netip.MustParseAddrPort("127.0.0.1:81"); own.Reached(registry.TCP, netip.MustParseAddrPort("127.0.0.1:40000"), elsewhere) {
		t.Error("a port that is not ours was taken for ours")
	}
}

// Operators' ports are ours at every address of this machine, whatever services bind to: the guard does not know where
// they are bound. Elsewhere the same number is another machine's.
func TestOperatorsPortsAreOursWhateverServicesBindTo(t *testing.T) {
	for _, bind := range []string{"0.0.0.0", "192.0.2.1", "127.0.0.1"} {
		own := NewOwnPorts(netip.MustParseAddr(bind))
		own.Reserve([]uint16{10249})
		for to, want := range map[string]bool{
			"127.0.0.1:10249": true, "[::1]:10249": true, "0.0.0.0:10249": true, "127.0.0.1:10250": false, "192.0.2.7:10249": false,
		} {
			if got := own.Contains(registry.TCP, netip.MustParseAddrPort(to)); got != want {
				t.Errorf("bound to %s: %s is ours: %v; want %v", bind, to, got, want)
			}
			if own.Contains(registry.UDP, netip.MustParseAddrPort(to)) {
				t.Errorf("bound to %s: %s is ours over udp", bind, to)
			}
		}
	}
}

// What is asked of the system about addresses is bounded, however many addresses clients are forged from.
func TestAnswersAboutAddressesAreBounded(t *testing.T) {
	own := NewOwnPorts(netip.IPv4Unspecified())
	addr := netip.MustParseAddr("198.18.0.1")
	for range 2*maxLocal + 1 {
		if own.IsLocal(addr) {
			t.Fatalf("%s is an address of this machine", addr)
		}
		addr = addr.Next()
		if len(own.local) > maxLocal {
			t.Fatalf("%d answers are kept; want %d at most", len(own.local), maxLocal)
		}
	}
}

// A listener at an address of a service is ours at that address, whatever the node's listeners bind to.
func TestListenersAtAddressesAreRecognisedThere(t *testing.T) {
	at, other := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")
	for _, bind := range []string{"192.0.2.1", "127.0.0.1"} {
		own := NewOwnPorts(netip.MustParseAddr(bind))
		own.Add(registry.ListenerID{Addr: at, Number: 80})
		own.Add(registry.ListenerID{Addr: other, Number: 80})
		own.Add(registry.ListenerID{Addr: netip.IPv6Loopback(), Number: 80})
		own.Remove(registry.ListenerID{Addr: other, Number: 80})
		for addr, want := range map[string]bool{
			"127.0.0.2:80": true, "[::ffff:127.0.0.2]:80": true, "[::1]:80": true, "[::]:80": true,
			"127.0.0.2:81": false, "127.0.0.3:80": false, "127.0.0.1:80": false, bind + ":80": false,
		} {
			if got := own.Contains(registry.TCP, netip.MustParseAddrPort(addr)); got != want {
				t.Errorf("bound to %s: %s is ours: %v; want %v", bind, addr, got, want)
			}
		}
		if own.Contains(registry.UDP, netip.AddrPortFrom(at, 80)) {
			t.Error("the other protocol is ours")
		}
		own.Remove(registry.ListenerID{Addr: at, Number: 80})
		if own.Contains(registry.TCP, netip.AddrPortFrom(at, 80)) {
			t.Error("what was closed is ours")
		}
	}
}
