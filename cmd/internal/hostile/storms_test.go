//go:build linux

package hostile

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/proxy/proxytest"
)

// stormBound is how many datagrams one datagram may become.
const stormBound = 200

// TestOneDatagramMakesNoStorm: records and forged senders that would have a datagram go round for ever, or be sent to
// everybody.
func TestOneDatagramMakesNoStorm(t *testing.T) {
	const port, other = "7306", "7307"
	service := netip.MustParseAddrPort("127.0.0.1:7306")
	for _, c := range []struct {
		name, endpoint string
		from           string // the sender's address, forged
		to             netip.AddrPort
		flags          []string
	}{
		{"an endpoint that is a multicast group", "224.0.0.1:7306", "127.0.0.1:40000", service, nil},
		{"an endpoint that is a multicast group of IPv6", "[ff02::1%m0]:7306", "127.0.0.1:40000", service, []string{"-bind_address=::"}},
		{"a client that is another service", mirrors, "127.0.0.1:7307", service, nil},
		{"a client that is the endpoint", mirrors, mirrors, service, nil},
		{"an endpoint that is a local route to us", "10.55.1.2:7306", "10.55.3.4:40000", netip.MustParseAddrPort("10.55.0.1:7306"), nil},
	} {
		inOwnNetwork(t, c.name, func(t *testing.T) {
			proxytest.MustRun(t, "sh", "-ec", `echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; ip route add local 10.55.0.0/16 dev lo
				ip link add m0 type veth peer m1; ip link set m0 up; ip link set m1 up; ip addr add 10.44.0.1/24 dev m0; ip addr add 10.44.0.2/24 dev m1; ip route add 224.0.0.0/4 dev m0`)
			s := attacked(t, c.flags...)
			s.service(t, "storm", port, "UDP", c.endpoint)
			s.service(t, "other", other, "UDP", mirrors)
			eventually(t, func() bool { return s.sum(t, "kubeproxy_listeners") == 6 }, "the services are open")
			s.forgeOne(t, "one datagram for "+c.name, netip.MustParseAddrPort(c.from), c.to).judge(t)
		})
	}
}

// forgeOne sends one datagram in each round, and holds the node to stormBound datagrams a second later.
func (s *site) forgeOne(t *testing.T, scenario string, from, to netip.AddrPort) row {
	t.Helper()
	sink := netip.MustParseAddrPort(sinkAddr)
	r := s.withstands(t, scenario, base, func(t *testing.T, atProxy bool) func() {
		before := datagrams(t)
		aim := sink
		if atProxy {
			aim = to
		}
		proxytest.Forge(t, from, aim)
		time.Sleep(time.Second)
		if sent := datagrams(t) - before; sent > stormBound {
			t.Errorf("one datagram became %d in a second; want %d at most", sent, stormBound)
		}
		return func() {}
	})
	r.Refused = told(s.ended(t, "kubeproxy_udp_dropped_datagrams_total", "*"))
	return r
}

// datagrams is how many UDP datagrams this network has sent.
func datagrams(t *testing.T) (sent int64) {
	t.Helper()
	for _, file := range []string{"snmp", "snmp6"} {
		text, err := os.ReadFile("/proc/net/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var in, none, errors, out int64
			if _, err := fmt.Sscanf(line, "Udp: %d %d %d %d", &in, &none, &errors, &out); err == nil {
				sent += out
			}
			if _, err := fmt.Sscanf(line, "Udp6OutDatagrams %d", &out); err == nil {
				sent += out
			}
		}
	}
	return sent
}

// TestAConnectionThroughALocalRouteIsOne: all of 10.55.0.0/16 is this node, and so is the endpoint.
func TestAConnectionThroughALocalRouteIsOne(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	proxytest.MustRun(t, "ip", "route", "add", "local", "10.55.0.0/16", "dev", "lo")
	s := attacked(t)
	s.service(t, "storm", "7306", "TCP", "10.55.1.2:7306")
	eventually(t, func() bool { return s.sum(t, "kubeproxy_listeners") == 5 }, "the service is open")
	r := s.withstands(t, "an endpoint that is a local route to us, over TCP", base, func(t *testing.T, atProxy bool) func() {
		return call(t, atProxy, "10.55.0.1:7306", 5, 5)
	})
	total := s.sum(t, "kubeproxy_connections_active", "service", "default/storm") + s.sum(t, "kubeproxy_connections_ended_total", "service", "default/storm")
	if most := float64(2 * 5 * s.rounds()); total > most {
		t.Errorf("%.0f connections were made of %.0f", total, most/2)
	}
	r.Refused = told(s.ended(t, "kubeproxy_connections_ended_total", "storm"))
	r.judge(t)
}

// TestTwoNodesThatAreEachOthersEndpoint: one datagram to one of them.
func TestTwoNodesThatAreEachOthersEndpoint(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	const here, there, port = "10.99.0.1", "10.99.0.2", "7306"
	s := attacked(t)
	s.service(t, "storm", port, "UDP", here+":"+port, there+":"+port)
	cmd := exec.Command("sh", "-ec", `until ip link set there up; do sleep 0.1; done; ip link set lo up; ip addr add "$0"/24 dev there; exec "$@"`,
		there, os.Getenv(binaryEnv), "-engine="+os.Getenv(engineEnv), "-etcd_servers=http://"+here+":2379", "-v=1", "-healthz_bind_address="+there+":10256")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	node := programtest.RunTied(t, cmd)
	proxytest.MustRun(t, "ip", "link", "add", "here", "type", "veth", "peer", "name", "there", "netns", fmt.Sprint(node.Pid()))
	proxytest.MustRun(t, "ip", "addr", "add", here+"/24", "dev", "here")
	proxytest.MustRun(t, "ip", "link", "set", "here", "up")
	forward(t, here+":2379", s.etcd.Addr())
	eventually(t, func() bool { return s.page(t, "http://"+there+":10256/readyz") == "ok\n" }, "the other node is ready")
	eventually(t, func() bool { return s.sum(t, "kubeproxy_listeners") == 5 }, "the service is open")
	s.forgeOne(t, "one datagram for two nodes that are each other's endpoint", netip.MustParseAddrPort(here+":40000"), netip.MustParseAddrPort(here+":"+port)).judge(t)
}

// forward carries connections from one address to another.
func forward(t *testing.T, from, to string) {
	t.Helper()
	if err := serveTCP(from, func(c net.Conn) {
		d, err := net.Dial("tcp4", to)
		if err != nil {
			return
		}
		defer d.Close()
		go func() {
			_, _ = io.Copy(c, d)
			c.Close()
		}()
		_, _ = io.Copy(d, c)
	}); err != nil {
		t.Fatal(err)
	}
}
