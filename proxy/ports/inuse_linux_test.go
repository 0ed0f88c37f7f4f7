package ports

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// Whether the system is asked for its sockets or a port is tried, the answer is the same, and it is that of an attempt to listen.
func TestPortsInUseAreThoseThatCannotBeListenedOn(t *testing.T) {
	addrs := func(list ...string) (ips []netip.Addr) {
		for _, a := range list {
			ips = append(ips, netip.MustParseAddr(a))
		}
		return ips
	}
	for _, other := range []struct{ network, host string }{
		{"tcp4", "127.0.0.1"}, {"tcp4", "127.0.0.2"}, {"tcp4", "0.0.0.0"}, {"tcp", "::"}, {"tcp6", "::1"}, {"tcp6", "::"},
		{"udp4", "127.0.0.1"}, {"udp4", "127.0.0.2"}, {"udp4", "0.0.0.0"}, {"udp", "::"}, {"udp6", "::1"}, {"udp6", "::"},
	} {
		t.Run(other.network+" "+other.host, func(t *testing.T) {
			id := registry.ListenerID{Protocol: registry.TCP, Number: proxytest.FreePort(t)}
			addr := net.JoinHostPort(other.host, fmt.Sprint(id.Number))
			if other.network[:3] == "udp" {
				id.Protocol = registry.UDP
				c, err := net.ListenPacket(other.network, addr)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
			} else {
				l, err := net.Listen(other.network, addr)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
			}
			free := registry.ListenerID{Protocol: id.Protocol, Number: proxytest.FreePort(t)}
			for _, bind := range addrs("0.0.0.0", "127.0.0.1", "127.0.0.3", "::1") {
				seen, tried := InUse(bind, []registry.ListenerID{id, free}, nil), tried(bind, []registry.ListenerID{id, free}, nil)
				if seen[id] != tried[id] {
					t.Errorf("bound to %v, port %v is seen in use: %v; and cannot be listened on: %v", bind, id, seen[id], tried[id])
				}
				if seen[free] || tried[free] {
					t.Errorf("bound to %v, the free port %v is in use: %v, %v", bind, free, seen[free], tried[free])
				}
			}
		})
	}
}

func TestOwnLocalPortsAreThoseOfConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	u, err := net.Dial("udp", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	port := func(a net.Addr) uint16 { return netip.MustParseAddrPort(a.String()).Port() }
	own := OwnLocal()
	if !own[enginetest.TCPPort(port(c.LocalAddr()))] || !own[enginetest.UDPPort(port(u.LocalAddr()))] {
		t.Errorf("a connection from %v and a session from %v are not known", c.LocalAddr(), u.LocalAddr())
	}
	if own[enginetest.UDPPort(port(l.Addr()))] || own[enginetest.TCPPort(port(u.LocalAddr()))] {
		t.Error("protocols are mixed up")
	}
	if own[enginetest.TCPPort(port(l.Addr()))] {
		t.Error("a client's connection, whose local port is that of the service, counts as one that keeps the service from its port")
	}
}

// A port that another program had at an address is free once that has gone, whatever we have open at other addresses.
func TestAListenerOfOursKeepsNoOtherFromItsPort(t *testing.T) {
	own, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	node := registry.ListenerID{Number: uint16(own.Addr().(*net.TCPAddr).Port)}
	waits := registry.ListenerID{Addr: netip.MustParseAddr("127.0.0.2"), Number: node.Number}
	all := netip.IPv4Unspecified()
	if inUse := InUse(all, []registry.ListenerID{waits}, nil); !inUse[waits] {
		t.Error("another program's socket at all addresses is not seen")
	}
	if inUse := InUse(all, []registry.ListenerID{waits}, []registry.ListenerID{node}); inUse[waits] {
		t.Error("our own is taken for another program's")
	}
}
