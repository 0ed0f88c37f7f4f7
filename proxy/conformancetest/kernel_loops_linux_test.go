package conformancetest

import (
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A mirror is an endpoint on the other machine that answers each datagram with itself. Of those that go round it answers mostRounds.
type mirror struct {
	registry.Addr
	conn   net.PacketConn
	rounds atomic.Int64 // datagrams that went round
}

const mostRounds, round = 1000, "round and round"

func (w *wire) mirror(addr string) *mirror {
	w.t.Helper()
	e := &mirror{Addr: proxytest.At(addrPort(addr))}
	w.Do(w.t, func() (err error) {
		e.conn, err = net.ListenPacket("udp", addr)
		return err
	})
	var answers sync.WaitGroup
	answers.Go(func() {
		for buf := make([]byte, 100); ; {
			n, from, err := e.conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if string(buf[:n]) != round || e.rounds.Add(1) < mostRounds {
				_, _ = e.conn.WriteTo(buf[:n], from) // what is lost here goes round no more
			}
		}
	})
	w.t.Cleanup(func() { e.conn.Close(); answers.Wait() })
	return e
}

// An endpoint that sends to its own service would be given what it sent, and each of its answers after that. Nor is a datagram sent to the
// port of the service at its client's address: that may be another node's listener, which sent the datagram here.
func TestThroughTheKernelNoUDPEndpointIsGivenItsOwnDatagrams(t *testing.T) {
	onAWire(t, func(w *wire) {
		other := w.serve("other", "10.77.0.4:9000")
		for _, c := range []struct{ name, endpoint, client, node string }{
			{"the endpoint sends", "10.77.0.3:9000", "10.77.0.3:9000", "10.77.0.1:5353"},
			{"the endpoint sends, over IPv6", "[fd77::3]:9000", "[fd77::3]:9000", "[fd77::1]:5353"},
			{"the endpoint sends, and has the port of the service", "10.77.0.3:5353", "10.77.0.3:5353", "10.77.0.1:5353"},
			{"another node sends", "10.77.0.3:5353", "10.77.0.3:40000", "10.77.0.1:5353"},
			{"another node sends, over IPv6", "[fd77::3]:5353", "[fd77::3]:40000", "[fd77::1]:5353"},
		} {
			t.Run(c.name, func(t *testing.T) {
				w := &wire{w.Peer, t}
				n := w.node()
				e := w.mirror(c.endpoint)
				n.apply(checkedService("dns", udp(5353), registry.Check{Send: "ping"}), endpoints("dns", e.Addr))
				n.becomes(kernel.Carried)
				from := e.conn
				if c.client != c.endpoint {
					from = w.mirror(c.client).conn
				}
				if _, err := from.WriteTo([]byte(round), net.UDPAddrFromAddrPort(addrPort(c.node))); err != nil {
					t.Fatal(err)
				}
				proxytest.Eventually(t, func() bool {
					return totalsOf(n, "dns").Dropped[drop("loop")] == 1 || e.rounds.Load() >= mostRounds
				}, "the end of the loop")
				if rounds := e.rounds.Load(); rounds > 0 {
					t.Errorf("the endpoint was given %d of its own datagrams, and stopped to answer; want none", rounds)
				}
				if addrPort(c.endpoint).Addr().Is6() {
					return
				}
				// Beside another endpoint, that has the client.
				n.apply(endpoints("dns", e.Addr, other.Addr))
				n.becomes(kernel.Carried)
				for range 8 {
					if _, err := from.WriteTo([]byte(round), net.UDPAddrFromAddrPort(addrPort(c.node))); err != nil {
						t.Fatal(err)
					}
				}
				proxytest.Eventually(t, func() bool { return totalsOf(n, "dns").Sent >= 8*uint64(len(round)) || e.rounds.Load() > 0 }, "the datagrams at the other endpoint")
				if rounds := e.rounds.Load(); rounds > 0 {
					t.Errorf("beside another endpoint, it was given %d of its own datagrams; want none", rounds)
				}
			})
		}
	})
}

// Only what could go round is kept from the kernel: it carries other clients of an endpoint's machine.
func TestTheKernelCarriesAClientOnTheMachineOfAnEndpoint(t *testing.T) {
	onAWire(t, func(w *wire) {
		n := w.node()
		one := w.serve("one", "10.77.0.3:9000")
		n.apply(
			checkedService("dns", udp(5353), registry.Check{Send: "ping"}), endpoints("dns", one.Addr),
			checkedService("web", tcp(9000), registry.Check{}), endpoints("web", one.Addr))
		n.becomes(kernel.Carried)
		var client net.Conn
		w.Do(t, func() (err error) {
			client, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.77.0.3:40000")), net.UDPAddrFromAddrPort(addrPort("10.77.0.1:5353")))
			return err
		})
		defer client.Close()
		if answer := askUDP(t, client); answer != "one" {
			t.Errorf("over UDP it is answered %q", answer)
		}
		w.Do(t, func() (err error) {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(10, 77, 0, 3)}, Timeout: proxytest.Patience}
			client, err = dialer.Dial("tcp", "10.77.0.1:9000")
			return err
		})
		defer client.Close()
		if answer, err := say(client); err != nil || answer != "one 10.77.0.1" {
			t.Errorf("over TCP it is answered %q, %v", answer, err)
		}
		n.end()
		for _, name := range []string{"dns", "web"} {
			if sum := totalsOf(n, name); sum.Carried == 0 || sum.Sent != 0 {
				t.Errorf("%s: the kernel carried %d clients, and userspace %d bytes; want 1 at least, and 0", name, sum.Carried, sum.Sent)
			}
		}
	})
}

// An address of an endpoint may become this node's, as a virtual one does. Clients whom the kernel sends there meet our own listener then, which
// gives them another endpoint: no connection opens another to ourselves.
func TestThroughTheKernelAnEndpointWhoseAddressBecomesOursMakesNoLoop(t *testing.T) {
	onAWire(t, func(w *wire) {
		n := w.node()
		moves, stays := w.serve("moves", "10.77.0.3:8080"), w.serve("stays", "10.77.0.4:9000")
		n.apply(checkedService("web", tcp(8080), registry.Check{}), endpoints("web", moves.Addr, stays.Addr))
		n.becomes(kernel.Carried)
		moves.close()
		w.Do(t, func() error { return exec.Command("ip", "addr", "del", "10.77.0.3/24", "dev", "there").Run() })
		proxytest.MustRun(t, "ip", "addr", "add", "10.77.0.3/32", "dev", "lo")
		const clients = 16
		for range clients {
			if answer, err := say(w.dial("tcp", "10.77.0.1:8080")); err != nil || !strings.HasPrefix(answer, "stays") {
				t.Errorf("a client is answered %q, %v", answer, err)
			}
		}
		n.end()
		// Before the address is known to be ours, one attempt may reach ourselves; and a client may have been counted by the kernel, too.
		if sum := totalsOf(n, "web"); sum.Begun > 2*clients+2 {
			t.Errorf("%d clients have become %d", clients, sum.Begun)
		}
	})
}
