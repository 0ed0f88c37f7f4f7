//go:build linux

package patroni

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/try"
)

// Each member is a host with a network of its own, joined by one cable to the node: there etcd, the proxies and the writers are, and it routes between
// the members. So a member can be cut off from all, or from etcd and the other members alone.
const (
	nodeIP     = "10.98.70.254"
	proxyIP    = "10.98.70.100" // where all proxies listen
	cutTable   = "cut"          // of nftables
	countTable = "count"        // of nftables
)

// network is the name of a process's network.
func network(pid int) (string, error) { return os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)) }

// prepareNode makes the network of this process that of the node. It changes addresses and rules, so it refuses that of the machine, where
// [measure.Main] was not allowed to make another.
func prepareNode() (err error) {
	defer try.Catch(&err)
	if try.Get(network(os.Getpid())) == try.Get(network(os.Getppid())) {
		return errors.New("the measurement needs a network of its own, which only root may make")
	}
	for _, at := range []string{nodeIP, proxyIP} {
		try.Do(ip("addr", "add", at+"/32", "dev", "lo"))
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

func ip(args ...string) error { return run("ip", args...) }

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// A host is where a member runs: a process that only holds a network.
type host struct {
	name, ip string
	holder   *process.Process
}

// startHost starts a host and joins it to the node.
func startHost(ps *process.Group, name, at string) (h *host, err error) {
	defer try.Catch(&err)
	h = &host{name, at, try.Get(ps.Start("host-"+name, "unshare", "-n", "sleep", "infinity"))}
	ours := try.Get(network(os.Getpid()))
	try.Do(h.holder.Await(10*time.Second, func() bool {
		its, err := network(h.holder.PID())
		return err == nil && its != ours
	}))
	inside := func(args ...string) error { return run("nsenter", h.enter(append([]string{"ip"}, args...)...)...) }
	return h, errors.Join(
		ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(h.holder.PID())),
		ip("link", "set", name, "up"),
		ip("route", "add", at+"/32", "dev", name, "src", nodeIP),
		inside("link", "set", "lo", "up"),
		inside("link", "set", "eth0", "up"),
		inside("addr", "add", at+"/32", "dev", "eth0"),
		inside("route", "add", nodeIP, "dev", "eth0"),
		inside("route", "add", "default", "via", nodeIP),
	)
}

// enter gives the arguments of nsenter with which a command runs on the host.
func (h *host) enter(command ...string) []string {
	return append([]string{"-t", strconv.Itoa(h.holder.PID()), "-n"}, command...)
}

// isolate drops what comes from a host and what goes to it, without a word: all, or what is of etcd and of other hosts.
func (h *host) isolate(all bool, etcdPort string) (mend func(), err error) {
	from, to := []string{""}, []string{""}
	if !all {
		from = []string{"ip daddr != " + nodeIP, "tcp dport " + etcdPort}
		to = []string{"ip saddr != { " + nodeIP + ", " + proxyIP + " }", "tcp sport " + etcdPort}
	}
	var rules strings.Builder
	fmt.Fprintf(&rules, "table ip %s {\n chain from { type filter hook prerouting priority raw;\n", cutTable)
	for _, what := range from {
		fmt.Fprintf(&rules, "iifname %s %s drop\n", h.name, what)
	}
	rules.WriteString("}\n chain to { type filter hook postrouting priority filter;\n")
	for _, what := range to {
		fmt.Fprintf(&rules, "oifname %s %s drop\n", h.name, what)
	}
	rules.WriteString("}\n}\n")
	return func() { _ = run("nft", "delete", "table", "ip", cutTable) }, loadRules(rules.String()) // what fails shows in settled
}

// countConnections counts the connections that are begun with a port of a host, each time that it is begun anew included.
func (h *host) countConnections(port int) (count func() (int, error), stop func(), err error) {
	err = loadRules(fmt.Sprintf("table ip %s {\n counter begun {}\n chain to { type filter hook postrouting priority filter;\n oifname %s tcp dport %d tcp flags & (syn | ack) == syn counter name begun\n}\n}\n", countTable, h.name, port))
	return func() (int, error) {
		out, err := exec.Command("nft", "list", "counter", "ip", countTable, "begun").Output()
		if err != nil {
			return 0, fmt.Errorf("nft: %w", err)
		}
		_, text, _ := strings.Cut(string(out), "packets ")
		text, _, _ = strings.Cut(text, " ")
		return strconv.Atoi(text)
	}, func() { _ = run("nft", "delete", "table", "ip", countTable) }, err
}

func loadRules(rules string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}
