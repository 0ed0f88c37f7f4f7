package conformancetest

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"

	"kubeproxy/proxy"
	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A wire is a node whose kernel may carry ports, and another machine that has the clients and the endpoints. Without the masquerade an
// answer of an endpoint would reach the client on its own way, and not be understood.
type wire struct {
	*proxytest.Peer
	t *testing.T
}

// onAWire runs a test in a network of its own, with a node that forwards packets.
func onAWire(t *testing.T, test func(w *wire)) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	w := &wire{proxytest.NewPeer(t), t}
	for _, forward := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		if err := os.WriteFile(forward, []byte("1"), 0); err != nil {
			t.Skipf("the node cannot forward packets here: %v", err)
		}
	}
	w.address("10.77.0.3/24", "10.77.0.4/24", "fd77::3/64", "fd77::2/64")
	proxytest.MustRun(t, "ip", "addr", "add", "fd77::1/64", "dev", "here", "nodad")
	test(w)
}

// address gives the other machine addresses.
func (w *wire) address(all ...string) {
	w.t.Helper()
	w.Do(w.t, func() error {
		for _, a := range all {
			args := []string{"addr", "add", a, "dev", "there"}
			if strings.Contains(a, ":") {
				args = append(args, "nodad")
			}
			if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %v: %w: %s", args, err, out)
			}
		}
		return nil
	})
}

// kernelConfig is the configuration of a node on a wire.
func kernelConfig() proxy.Config {
	cfg := liveConfig()
	cfg.BindAddress, cfg.Kernel = netip.IPv4Unspecified(), true
	return cfg
}

// node starts a node whose kernel may carry ports.
func (w *wire) node() *node {
	return newNode(w.t, kernelConfig())
}

// A remote is an endpoint on the other machine that says who it is, and whom it sees.
type remote struct {
	registry.Addr
	listener net.Listener
	packets  net.PacketConn
	conns    sync.Map // net.Conn: closed with the endpoint, since the other end may not be heard of when its node is gone
}

// serve starts an endpoint of both protocols.
func (w *wire) serve(name, addr string) *remote {
	w.t.Helper()
	e := &remote{Addr: proxytest.At(addrPort(addr))}
	w.Do(w.t, func() (err error) {
		if e.listener, err = net.Listen("tcp", addr); err == nil {
			e.packets, err = net.ListenPacket("udp", addr)
		}
		return err
	})
	var all sync.WaitGroup
	all.Go(func() { answerAll(e.listener, name, func(conn net.Conn) { e.conns.Store(conn, nil) }) })
	all.Go(func() {
		for buf := make([]byte, 100); ; {
			_, from, err := e.packets.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = e.packets.WriteTo([]byte(name), from) // the client asks again
		}
	})
	w.t.Cleanup(func() {
		e.close()
		e.conns.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
		all.Wait()
	})
	return e
}

// answerAll answers each line of each client with a name and the address of the client, and a request by HTTP with a status, until the
// listener is closed.
func answerAll(l net.Listener, name string, accepted func(net.Conn)) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		accepted(conn)
		all.Go(func() {
			defer conn.Close()
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "GET ") {
					fmt.Fprint(conn, "HTTP/1.1 200 .\r\n\r\n")
					return
				}
				fmt.Fprintln(conn, name, addrPort(conn.RemoteAddr().String()).Addr())
			}
		})
	}
}

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func (e *remote) close() {
	e.listener.Close()
	e.packets.Close()
}

// dial connects a client on the other machine.
func (w *wire) dial(network, addr string) (conn net.Conn) {
	w.t.Helper()
	w.Do(w.t, func() (err error) {
		conn, err = net.DialTimeout(network, addr, proxytest.Patience)
		return err
	})
	w.t.Cleanup(func() { conn.Close() })
	return conn
}

// say asks the endpoint of a connection who it is.
func say(conn net.Conn) (answer string, err error) {
	_ = conn.SetDeadline(time.Now().Add(proxytest.Patience))
	if _, err := fmt.Fprintln(conn, "who?"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

// becomes waits until the kernel carries all ports of a node, or carries none for one reason.
func (n *node) becomes(want kernel.Reason) {
	n.t.Helper()
	proxytest.Eventually(n.t, func() bool {
		for _, s := range n.Status() {
			if s.Kernel != want {
				return false
			}
		}
		return true
	}, "all ports are %s in the kernel", want)
}

func TestTheKernelCarriesClientsOfSoundEndpoints(t *testing.T) {
	onAWire(t, func(w *wire) {
		for _, of := range []struct{ node, one, two, sees string }{
			{"10.77.0.1:8080", "10.77.0.3:9000", "10.77.0.4:9000", "10.77.0.1"},
			{"[fd77::1]:8080", "[fd77::2]:9000", "[fd77::3]:9000", "fd77::1"},
		} {
			n := w.node()
			one, two := w.serve("one", of.one), w.serve("two", of.two)
			n.apply(checkedService("web", tcp(8080), registry.Check{}), endpoints("web", one.Addr, two.Addr))
			n.becomes(kernel.Carried)
			seen := make(map[string]uint64)
			count := uint64(0)
			for len(seen) < 2 {
				answer, err := say(w.dial("tcp", of.node))
				if err != nil {
					t.Fatal(err)
				}
				seen[answer]++
				count++
			}
			if seen["one "+of.sees] == 0 || seen["two "+of.sees] == 0 {
				t.Errorf("%s: clients were answered by %v; want both endpoints, and they see %s", of.node, seen, of.sees)
			}
			local, err := net.Dial("tcp", of.node) // a client on the node
			if err != nil {
				t.Fatal(err)
			}
			if answer, err := say(local); err != nil || !strings.HasSuffix(answer, of.sees) {
				t.Errorf("a client on the node was answered %q, %v", answer, err)
			}
			local.Close()
			n.end()
			if sum := totalsOf(n, "web"); sum.Begun != count+1 || sum.Sent != 0 {
				t.Errorf("%s: %d connections are counted, and userspace carried %d bytes; want %d and 0", of.node, sum.Begun, sum.Sent, count+1)
			}
			one.close()
			two.close()
		}
	})
}

// The kernel tracks connections from the first port on that it carries. What it meets of older ones looks like the beginning of new ones.
func TestAConnectionOfUserspaceGoesOnWhenTheKernelTakesItsPort(t *testing.T) {
	onAWire(t, func(w *wire) {
		for _, of := range []struct{ node, endpoint string }{{"10.77.0.1:8080", "10.77.0.3:9000"}, {"[fd77::1]:8080", "[fd77::2]:9000"}} {
			n := w.node()
			one := w.serve("one", of.endpoint)
			n.apply(service("web", tcp(8080)), endpoints("web", one.Addr))
			remote := w.dial("tcp", of.node)
			local, err := net.Dial("tcp", of.node) // a client on the node
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { local.Close() })
			for _, client := range []net.Conn{remote, local} {
				if _, err := say(client); err != nil {
					t.Fatal(err)
				}
			}
			n.apply(checkedService("web", tcp(8080), registry.Check{}))
			n.becomes(kernel.Carried)
			for range 3 {
				for _, client := range []net.Conn{remote, local} {
					if answer, err := say(client); err != nil || !strings.HasPrefix(answer, "one") {
						t.Errorf("%s: a client from before is answered %q, %v", of.node, answer, err)
					}
				}
			}
			if sum := totalsOf(n, "web"); sum.Active != 2 {
				t.Errorf("%s: userspace carries %d clients; want 2", of.node, sum.Active)
			}
			n.end()
			one.close()
		}
	})
}

func TestALoopbackClientIsTheEngines(t *testing.T) {
	onAWire(t, func(w *wire) {
		n := w.node()
		n.apply(checkedService("web", tcp(8080), registry.Check{}), endpoints("web", w.serve("one", "10.77.0.3:9000").Addr))
		n.becomes(kernel.Carried)
		if answer, err := say(proxytest.Dial(t, proxytest.On(8080))); err != nil || answer != "one 10.77.0.1" {
			t.Errorf("the client gets %q, %v", answer, err)
		}
		if sum := totalsOf(n, "web"); sum.Sent == 0 {
			t.Error("userspace carried nothing")
		}
	})
}

func TestAFailingEndpointMovesItsPortToUserspaceAndLeavesTheKernel(t *testing.T) {
	onAWire(t, func(w *wire) {
		cfg := kernelConfig()
		cfg.Checks.Fall = 8 // so the port is in doubt for seconds, also on a busy machine
		n := newNode(t, cfg)
		one, two := w.serve("one", "10.77.0.3:9000"), w.serve("two", "10.77.0.4:9000")
		n.apply(checkedService("web", tcp(8080), registry.Check{}), endpoints("web", one.Addr, two.Addr))
		n.becomes(kernel.Carried)
		one.close()
		n.becomes(kernel.InDoubt)
		for range 8 {
			if answer, err := say(w.dial("tcp", "10.77.0.1:8080")); err != nil || !strings.HasPrefix(answer, "two") {
				t.Errorf("while one check has failed, a client gets %q, %v", answer, err)
			}
		}
		n.becomes(kernel.Carried)
		for range 8 {
			if answer, err := say(w.dial("tcp", "10.77.0.1:8080")); err != nil || !strings.HasPrefix(answer, "two") {
				t.Errorf("when its checks fail, a client gets %q, %v", answer, err)
			}
		}
		two.close()
		n.becomes(kernel.NoEndpoints)
	})
}

func TestAUDPFlowMovesWhenItsEndpointIsRemoved(t *testing.T) {
	onAWire(t, func(w *wire) {
		n := w.node()
		all := map[string]registry.Addr{"one": w.serve("one", "10.77.0.3:9000").Addr, "two": w.serve("two", "10.77.0.4:9000").Addr}
		n.apply(checkedService("dns", udp(5353), registry.Check{Send: "ping"}), endpoints("dns", all["one"], all["two"]))
		n.becomes(kernel.Carried)
		client := w.dial("udp", "10.77.0.1:5353")
		first := askUDP(t, client)
		if again := askUDP(t, client); again != first {
			t.Errorf("a flow went from %s to %s", first, again)
		}
		delete(all, first)
		for other, addr := range all {
			n.apply(endpoints("dns", addr))
			proxytest.Eventually(t, func() bool { return askUDP(t, client) == other }, "the flow moves")
		}
		n.end()
		if sum := totalsOf(n, "dns"); sum.Begun < 2 || sum.Sent != 0 {
			t.Errorf("%d flows are counted, and userspace carried %d bytes; want 2 at least, and 0", sum.Begun, sum.Sent)
		}
	})
}

func TestAUDPClientIsTheNextOwnersWithItsNextDatagramWhenThePortChangesHands(t *testing.T) {
	onAWire(t, func(w *wire) {
		n := w.node()
		swap := func(a, b uint16) {
			n.apply(checkedService("a", udp(a), registry.Check{Send: "ping"}), checkedService("b", udp(b), registry.Check{Send: "ping"}))
		}
		n.tell(endpoints("a", w.serve("a", "10.77.0.3:9000").Addr), endpoints("b", w.serve("b", "10.77.0.4:9000").Addr))
		swap(5353, 5354)
		n.becomes(kernel.Carried)
		client := w.dial("udp", "10.77.0.1:5353")
		for i := range 20 {
			owner := "a"
			if i%2 == 1 {
				owner = "b"
			}
			if answer := askUDP(t, client); answer != owner {
				t.Errorf("after %d changes, %s answers; want %s", i, answer, owner)
			}
			if owner == "a" {
				swap(5354, 5353)
			} else {
				swap(5353, 5354)
			}
		}
		n.end()
		if sum := totalsOf(n, "a"); sum.Carried == 0 {
			t.Error("the kernel carried no client")
		}
	})
}

// askUDP asks until there is an answer: a datagram may be lost while a flow moves.
func askUDP(t *testing.T, conn net.Conn) (answer string) {
	t.Helper()
	buf := make([]byte, 100)
	proxytest.Eventually(t, func() bool {
		_, _ = conn.Write([]byte("who?"))
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		n, err := conn.Read(buf)
		answer = string(buf[:n])
		return err == nil
	}, "an answer by UDP")
	return answer
}

func TestTheTableOutlivesAFlushAndEndsWithItsProcess(t *testing.T) {
	onAWire(t, func(w *wire) {
		n := w.node()
		n.apply(checkedService("web", tcp(8080), registry.Check{}), endpoints("web", w.serve("one", "10.77.0.3:9000").Addr))
		n.becomes(kernel.Carried)
		stranger, err := nftables.New()
		if err != nil {
			t.Fatal(err)
		}
		tables := func() []*nftables.Table {
			all, err := stranger.ListTables()
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		if stranger.FlushRuleset(); stranger.Flush() != nil || len(tables()) != 1 {
			t.Fatalf("after a flush there are %d tables; want ours", len(tables()))
		}
		if stranger.DelTable(tables()[0]); stranger.Flush() == nil {
			t.Error("another process can delete the table")
		}
		if _, err := say(w.dial("tcp", "10.77.0.1:8080")); err != nil {
			t.Error(err)
		}
		n.end()
		if left := tables(); len(left) != 0 {
			t.Errorf("at the end there is still %s", left[0].Name)
		}
		if sum := totalsOf(n, "web"); sum.Begun != 1 || sum.Sent != 0 {
			t.Errorf("%d connections are counted, and userspace carried %d bytes; want 1 and 0", sum.Begun, sum.Sent)
		}
	})
}

func TestAConnectionOfTheKernelGoesOnAfterATakeOver(t *testing.T) {
	onAWire(t, func(w *wire) {
		nodes := newNodesOf(t, kernelConfig(), kernelConfig())
		records := []change{checkedService("web", tcp(8080), registry.Check{}), endpoints("web", w.serve("one", "10.77.0.3:9000").Addr)}
		nodes[0].apply(records...)
		nodes[0].becomes(kernel.Carried)
		conn := w.dial("tcp", "10.77.0.1:8080")
		if _, err := say(conn); err != nil {
			t.Fatal(err)
		}
		nodes[0].passTo(nodes[1], records...)
		if _, err := say(conn); err != nil {
			t.Errorf("after the take-over: %v", err)
		}
		nodes[1].becomes(kernel.Carried)
		if _, err := say(w.dial("tcp", "10.77.0.1:8080")); err != nil {
			t.Errorf("a client of the successor: %v", err)
		}
		if _, err := say(conn); err != nil {
			t.Errorf("when the successor carries the port: %v", err)
		}
	})
}
