package conformancetest

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// translate has another program send what comes to an address to an endpoint, as Docker does for published ports.
func translate(t *testing.T, protocol byte, from, to netip.AddrPort) {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	bigEndian := func(port uint16) []byte { return []byte{byte(port >> 8), byte(port)} }
	table := conn.AddTable(&nftables.Table{Name: "stranger", Family: nftables.TableFamilyIPv4})
	chain := conn.AddChain(&nftables.Chain{Table: table, Name: "prerouting", Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityNATDest - 1)})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: from.Addr().AsSlice()},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: bigEndian(from.Port())},
		&expr.Immediate{Register: 1, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: 2, Data: bigEndian(to.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2, Specified: true},
	}})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

// seeing starts an endpoint over UDP on the other machine. Who asks it "who?" is sent to the channel.
func (w *wire) seeing(addr string) (seen chan netip.Addr) {
	w.t.Helper()
	var conn *net.UDPConn
	w.Do(w.t, func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addrPort(addr)))
		return err
	})
	seen = make(chan netip.Addr, 100)
	var reading sync.WaitGroup
	reading.Go(func() {
		for buf := make([]byte, 100); ; {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if string(buf[:n]) == "who?" {
				seen <- from.Addr()
				continue
			}
			_, _ = conn.WriteToUDPAddrPort(buf[:n], from) // a check, which asks again
		}
	})
	w.t.Cleanup(func() { conn.Close(); reading.Wait() })
	return seen
}

// Other programs translate connections, too: that of a container's port sees who its client is, though a service has the same port.
func TestConnectionsThatAnotherProgramTranslatesKeepTheirClient(t *testing.T) {
	for _, c := range []struct {
		name, bind, container string
	}{
		{"to another endpoint", "0.0.0.0", "10.77.0.3:9001"},
		{"to an endpoint of the service, from another address than -bind_address", "10.77.0.1", "10.77.0.3:9000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onAWire(t, func(w *wire) {
				cfg := kernelConfig()
				cfg.BindAddress = netip.MustParseAddr(c.bind)
				n := newNode(t, cfg)
				seen := w.seeing("10.77.0.3:9000")
				if c.container != "10.77.0.3:9000" {
					seen = w.seeing(c.container)
				}
				w.Do(t, func() error { // it is client and container in one, so its own address comes in from outside
					return errors.Join(
						os.WriteFile("/proc/sys/net/ipv4/conf/all/accept_local", []byte("1"), 0), os.WriteFile("/proc/sys/net/ipv4/conf/there/rp_filter", []byte("0"), 0),
						os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("0"), 0))
				})
				proxytest.MustRun(t, "ip", "addr", "add", "10.77.0.9/32", "dev", "here")
				translate(t, unix.IPPROTO_UDP, addrPort("10.77.0.9:5353"), addrPort(c.container))
				n.apply(checkedService("dns", udp(5353), registry.Check{Send: "ping"}), endpoints("dns", proxytest.At(addrPort("10.77.0.3:9000"))))
				n.becomes(kernel.Carried)
				var client *net.UDPConn
				w.Do(t, func() (err error) {
					client, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(addrPort("10.77.0.4:40000")), net.UDPAddrFromAddrPort(addrPort("10.77.0.9:5353")))
					return err
				})
				defer client.Close()
				if _, err := client.Write([]byte("who?")); err != nil {
					t.Fatal(err)
				}
				if got := proxytest.Receive(t, seen, "the datagram"); got != netip.MustParseAddr("10.77.0.4") {
					t.Errorf("the container sees %s; want its client", got)
				}
			})
		})
	}
}

// An endpoint on the node would see clients by their own addresses through the kernel, which masquerades only what leaves the node.
func TestAnEndpointOnTheNodeSeesTheNodeAlsoThroughTheKernel(t *testing.T) {
	onAWire(t, func(w *wire) {
		n := w.node()
		l, err := net.Listen("tcp", "10.77.0.1:9000")
		if err != nil {
			t.Fatal(err)
		}
		go answerAll(l, "here", func(net.Conn) {})
		t.Cleanup(func() { l.Close() })
		n.apply(checkedService("web", tcp(8080), registry.Check{}), endpoints("web", proxytest.At(addrPort("10.77.0.1:9000"))))
		n.becomes(kernel.Address)
		if answer, err := say(w.dial("tcp", "10.77.0.1:8080")); err != nil || answer != "here 10.77.0.1" {
			t.Errorf("a client is answered %q, %v", answer, err)
		}
	})
}
