package conformancetest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// Records that would turn the proxy against itself.

// An endpoint that is one of our own listeners would make each connection open another to
// ourselves, until the node has no descriptor left. It is refused, however it is addressed.
func (s suite) TestAnEndpointThatIsOurOwnListenerIsRefused(t *testing.T) {
	cfg := s.config()
	if !proxytest.InOwnNetwork(t) {
		return
	}
	// Another address of this machine.
	proxytest.MustRun(t, "ip", "addr", "add", "10.78.0.1/32", "dev", "lo")
	proxytest.MustRun(t, "ip", "addr", "add", "fd78::1/128", "dev", "lo", "nodad")
	for bind, endpoints := range map[string][]string{
		"0.0.0.0":   {"127.0.0.1", "127.0.0.2", "10.78.0.1", "fd78::1", "::1", "localhost", "0.0.0.0", "::", "::ffff:127.0.0.1"},
		"127.0.0.1": {"127.0.0.1", "localhost", "0.0.0.0"},
		"::1":       {"::1", "::"},
		"10.78.0.1": {"10.78.0.1"},
	} {
		t.Run("bound to "+bind, func(t *testing.T) {
			cfg.BindAddress = netip.MustParseAddr(bind)
			n := newNode(t, cfg)
			entrance := cfg.BindAddress
			if entrance.IsUnspecified() {
				entrance = proxytest.Loopback
			}
			for _, to := range endpoints {
				refusesLoops(t, n, entrance, to)
			}
		})
	}
}

// refusesLoops gives services endpoints that are the proxy's own ports, at an address that leads
// there, and checks that their clients are turned away and the node is none the worse.
func refusesLoops(t *testing.T, n *node, entrance netip.Addr, to string) {
	t.Helper()
	loop, there, back, well := proxytest.FreePort(t), proxytest.FreePort(t), proxytest.FreePort(t), proxytest.FreePort(t)
	own := func(port uint16) registry.Addr {
		if ip, err := netip.ParseAddr(to); err == nil {
			return registry.Addr{IP: netip.AddrPortFrom(ip, port)}
		}
		return host(to, port)
	}
	web, dns := served(t, proxytest.Identify("web")), servedUDP(t, "dns")
	n.apply(
		service("loop", tcp(loop), udp(loop)), endpoints("loop", own(loop)),
		service("there", tcp(there), udp(there)), endpoints("there", own(back)),
		service("back", tcp(back), udp(back)), endpoints("back", own(there)),
		service("web", tcp(well)), endpoints("web", own(loop), web, own(there)),
		service("dns", udp(well)), endpoints("dns", own(loop), dns, own(there)))
	before := proxytest.Sockets(t)
	start := time.Now()
	clients := 0
	var datagrams []*proxytest.UDPClient
	for _, port := range []uint16{loop, there, back} {
		at := netip.AddrPortFrom(entrance, port)
		if !proxytest.Refuses(at) {
			t.Errorf("endpoint %s: a client of the loop was not turned away", to)
		}
		client := proxytest.DialUDP(t, at)
		client.Write([]byte("round and round"))
		datagrams = append(datagrams, client)
		clients++
	}
	if took := time.Since(start); took > proxytest.Patience/3 {
		t.Errorf("endpoint %s: three clients of the loop were turned away in %v", to, took)
	}
	deadline := time.Now().Add(50 * time.Millisecond)
	for _, client := range datagrams {
		client.SetReadDeadline(deadline)
		if m, err := client.Read(make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("endpoint %s: a datagram into the loop came to %d bytes, %v; want silence", to, m, err)
		}
	}
	for range 4 {
		if got := proxytest.WhoAnswers(t, netip.AddrPortFrom(entrance, well)); got != "web" {
			t.Errorf("endpoint %s: beside it, answered by %q", to, got)
		}
		if got := proxytest.DialUDP(t, netip.AddrPortFrom(entrance, well)).AskOften(t).Name; got != "dns" {
			t.Errorf("endpoint %s: beside it, answered by %q", to, got)
		}
		clients += 2 // the client and its session
	}
	proxytest.Eventually(t, func() bool { return proxytest.Sockets(t) <= before+clients }, "endpoint %s: no sockets but those of clients", to)
	n.apply(noService("loop"), noService("there"), noService("back"), noService("web"), noService("dns"))
}

// Addresses move: one that was another node's a moment ago, and an endpoint all the time, may be ours
// now, as when a virtual address fails over.
func (s suite) TestAnEndpointWhoseAddressHasJustBecomeOursIsRefused(t *testing.T) {
	cfg := s.config()
	if !proxytest.InOwnNetwork(t) {
		return
	}
	limitDescriptors(t, fewDescriptors)
	cfg.BindAddress = netip.IPv4Unspecified()
	n := newNode(t, cfg)
	virtual := netip.MustParseAddr("10.79.0.1")
	port := proxytest.FreePort(t)
	loop := proxytest.At(netip.AddrPortFrom(virtual, port))
	n.apply(service("loop", tcp(port), udp(port)), endpoints("loop", loop))
	if !proxytest.Refuses(proxytest.On(port)) {
		t.Error("a client of an endpoint that cannot be reached was not turned away")
	}
	client := proxytest.DialUDP(t, proxytest.On(port))
	client.Write([]byte("nowhere to go"))

	proxytest.MustRun(t, "ip", "addr", "add", virtual.String()+"/32", "dev", "lo")
	before := proxytest.Sockets(t)
	if !proxytest.Refuses(proxytest.On(port)) {
		t.Error("a client of the loop was not turned away")
	}
	if !client.Drops() {
		t.Error("a datagram into the loop was answered or refused")
	}
	if got := proxytest.Sockets(t); got > before+2 {
		t.Errorf("two clients of the loop opened %d sockets", got-before)
	}
	// Each round through the loop is one more client. A round is seen only when it has been made, and on a busy machine the next one has begun by
	// then. A loop that is not seen goes on until the descriptors are gone.
	var ended uint64
	loops := totalsOf(n, "loop")
	for _, times := range loops.Ended {
		ended += times
	}
	if ended += uint64(loops.Active); ended > 20 {
		t.Errorf("two clients before the address was ours and two of the loop have become %d", ended)
	}
}

// The kernel may choose, for a connection to a port in its range of ephemeral ports on which no program// listens, that very port as the local one: the connection is then made with itself, and would echo
// what the client says. Here the range is made so small that this must happen.
func (s suite) TestADialThatConnectedToItselfIsUndone(t *testing.T) {
	cfg := s.config()
	if !proxytest.InOwnNetwork(t) {
		return
	}
	n := newNode(t, cfg)
	addr, udpAddr := tcpThrough(t, n), udpThrough(t, n)
	trapped := false
	for dead := uint16(40000); dead < 40040; dead += 2 {
		ephemeralPorts(t, dead, dead+1)
		trapped = trapped || connectsToItself(t, dead)
		n.apply(endpoints("web", proxytest.At(proxytest.On(dead))), endpoints("dns", proxytest.At(proxytest.On(dead))))
		for range 2 {
			// The client chooses its own port, and leaves the range to the proxy.
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(proxytest.FreePort(t))}}
			conn, err := dialer.Dial("tcp", addr.String())
			if err != nil {
				continue // turned away already
			}
			client := conn.(*net.TCPConn)
			client.SetDeadline(time.Now().Add(proxytest.Patience))
			m, err := 0, error(nil)
			if _, err = client.Write([]byte("echo?")); err == nil {
				m, err = client.Read(make([]byte, 10))
			}
			if m != 0 || !proxytest.IsReset(err) {
				t.Errorf("endpoint %d: read %d bytes, %v; want a reset", dead, m, err)
			}
			client.Close()
		}
		client, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(proxytest.On(proxytest.FreePort(t))), net.UDPAddrFromAddrPort(udpAddr))
		if err != nil {
			t.Fatal(err)
		}
		client.Write([]byte("echo?"))
		client.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if m, err := client.Read(make([]byte, 10)); err == nil {
			t.Errorf("endpoint %d: a client over udp was sent its own %d bytes", dead, m)
		}
		client.Close()
	}
	if !trapped {
		t.Error("the kernel never chose the port that was dialled: the trap does not work")
	}
}

// connectsToItself reports whether a connection to a port of 127.0.0.1 is made with itself when one
// does not look: package net does, up to twice.
func connectsToItself(t *testing.T, port uint16) bool {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	// End with a reset, so that nothing is left in the way of who tries next.
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		t.Fatal(err)
	}
	return unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: int(port)}) == nil
}

// The proxy's own connections to endpoints have local ports that the kernel chose. They must not keep
// a service from such a port.
func (s suite) TestOurOwnConnectionsDoNotKeepAPortFromAService(t *testing.T) {
	cfg := s.config()
	if !proxytest.InOwnNetwork(t) {
		return
	}
	n := newNode(t, cfg)
	web := served(t, proxytest.Chat("web"))
	addr := tcpThrough(t, n, web)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(proxytest.FreePort(t))}}
	const low, high = 40000, 40001
	ephemeralPorts(t, low, high) // one of these is the connection's
	conn, err := dialer.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintln(conn, "hello")
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	n.apply(service("low", tcp(low)), service("high", tcp(high)))
}

// Without a route the kernel refuses at once, and not as a closed port does.
func (s suite) TestAnEndpointWithoutARouteIsPassedOver(t *testing.T) {
	cfg := s.config()
	if !proxytest.InOwnNetwork(t) { // which has no route to anywhere
		return
	}
	n := newNode(t, cfg)
	nowhere := registry.Addr{IP: netip.MustParseAddrPort("203.0.113.1:80")}
	nowhere6 := registry.Addr{IP: netip.MustParseAddrPort("[2001:db8::1]:80")}
	addr := tcpThrough(t, n, nowhere, nowhere6, served(t, proxytest.Identify("web")))
	udpAddr := udpThrough(t, n, nowhere, nowhere6, servedUDP(t, "dns"))
	for range 4 {
		if got := proxytest.WhoAnswers(t, addr); got != "web" {
			t.Errorf("answered by %q", got)
		}
		if got := proxytest.DialUDP(t, udpAddr).Ask(t).Name; got != "dns" {
			t.Errorf("answered by %q", got)
		}
	}
}

// ephemeralPorts sets the range of ports that the kernel gives to sockets that ask for none, in the
// test's own network.
func ephemeralPorts(t *testing.T, low, high uint16) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", fmt.Appendf(nil, "%d %d", low, high), 0); err != nil {
		t.Fatal(err)
	}
}
