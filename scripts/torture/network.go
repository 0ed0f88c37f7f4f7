//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"syscall"

	"kubeproxy/internal/process"
)

// A network is where the three parties are. Clients and endpoints are in this process.
type network struct {
	node    netip.Addr   // kube-proxy
	host    netip.Addr   // endpoints
	clients netip.Prefix // addresses of clients
	enter   []string     // what starts a program on the node
}

// loopback has all of them on the loopback.
var loopback = network{node: netip.AddrFrom4([4]byte{127, 0, 0, 1}), host: netip.AddrFrom4([4]byte{127, 0, 0, 1}), clients: netip.MustParsePrefix("127.77.0.0/16")}

// client returns one of the addresses of clients.
func (n network) client(i uint64) netip.Addr {
	base := n.clients.Addr().As4()
	return netip.AddrFrom4([4]byte{base[0], base[1], byte(i / 250 % 250), byte(1 + i%250)})
}

// wired makes a network in which the node is another machine than clients and endpoints: the kernel carries only what it forwards. It
// needs a network namespace of its own, and makes another one for the node, which lasts as long as the group.
func wired(group *process.Group) (network, error) {
	n := network{node: netip.MustParseAddr("10.77.0.1"), host: netip.MustParseAddr("10.77.0.2"), clients: netip.MustParsePrefix("10.78.0.0/16")}
	holder := exec.Command("cat") // it waits until its standard input ends
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if _, err := holder.StdinPipe(); err != nil {
		return n, err
	}
	p, err := process.Run("the node", holder)
	if err != nil {
		return n, err
	}
	group.OnStop(p.Kill)
	pid := strconv.Itoa(p.PID())
	n.enter = []string{"nsenter", "--target=" + pid, "--net"}
	here := func(args ...string) error { return run(append([]string{"ip"}, args...)...) }
	there := func(args ...string) error { return run(append(n.enter, args...)...) }
	return n, errors.Join(
		here("link", "set", "lo", "up"),
		here("link", "add", "here", "type", "veth", "peer", "name", "there", "netns", pid),
		here("addr", "add", "10.77.0.2/24", "dev", "here"),
		here("link", "set", "here", "up"),
		here("route", "add", "local", n.clients.String(), "dev", "lo"),
		there("ip", "link", "set", "lo", "up"),
		there("ip", "addr", "add", "10.77.0.1/24", "dev", "there"),
		there("ip", "link", "set", "there", "up"),
		there("ip", "route", "add", n.clients.String(), "via", "10.77.0.2"),
		there("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"),
		// A machine that is busy does not end flows; the settings are there with connection tracking, which the kernel may have yet to load.
		there("sh", "-c", "for s in udp_timeout udp_timeout_stream; do f=/proc/sys/net/netfilter/nf_conntrack_$s; [ ! -e $f ] || echo 600 >$f; done"),
	)
}

func run(args ...string) error {
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return nil
}
