//go:build linux

package peers

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/load"
)

// A variant is one kube-proxy to measure: a binary and flags.
type variant struct {
	name    string
	binary  string // empty: the one that is measured by default
	flags   []string
	viewers int // of its status page
}

// parseVariants reads "NAME=[BINARY] FLAGS;...". {ip} in a flag stands for the variant's own address.
func parseVariants(text string) ([]variant, error) {
	var all []variant
	seen := make(map[string]bool)
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, rest, _ := strings.Cut(part, "=")
		v := variant{name: strings.TrimSpace(name), flags: strings.Fields(rest)}
		if len(v.flags) > 0 && !strings.HasPrefix(v.flags[0], "-") {
			v.binary, v.flags = v.flags[0], v.flags[1:]
		}
		switch {
		case v.name == "" || strings.HasPrefix(v.name, "-") || strings.ContainsAny(v.name, " /"):
			return nil, fmt.Errorf("variant %q has no name: want NAME=FLAGS", part)
		case seen[v.name] || v.name == "direct" || v.name == "haproxy" || v.name == "nginx" || v.name == "etcd" || v.name == "backends":
			return nil, fmt.Errorf("the name %q is taken", v.name)
		}
		seen[v.name] = true
		all = append(all, v)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no variant")
	}
	return all, nil
}

// operatorFlags turn on what operators see, at the variant's own address, and give the one service of a row room. They are left out where the
// binary does not have them.
var operatorFlags = []string{"-metrics_bind_address={ip}:10249", "-healthz_bind_address={ip}:10256",
	fmt.Sprintf("-max_connections_per_service=%d", manyHeld+100)} // earlier builds gave a service half of all, too few for the idle row

// kubeProxy makes a proxy of a variant. Later flags win, so a variant can undo ours.
func kubeProxy(ps *process.Group, v variant, binary string, host netip.Addr, at load.Ports, etcd string) (*proxy, error) {
	if v.binary != "" {
		binary = v.binary
	}
	has, err := flagsOf(binary)
	if err != nil {
		return nil, err
	}
	cmd := []string{binary, "-logtostderr", "-etcd_servers=" + etcd, "-bind_address={ip}",
		"-drain_timeout=0", fmt.Sprintf("-udp_timeout=%v", udpTimeout)}
	for _, flag := range operatorFlags {
		if name, _, _ := strings.Cut(flag, "="); has[name] {
			cmd = append(cmd, flag)
		}
	}
	cmd = append(cmd, v.flags...)
	for i := range cmd {
		cmd[i] = strings.ReplaceAll(cmd[i], "{ip}", host.String())
	}
	return &proxy{name: v.name, ours: true, udp: true, host: host, at: at, cmd: cmd, slow: 30 * time.Second, ps: ps, viewed: v.viewers}, nil
}

// flagsOf returns the flags that a kube-proxy has, by its own words. Early ones list all of them with -h; later ones list the most needed there.
func flagsOf(binary string) (map[string]bool, error) {
	usage, err := exec.Command(binary, "help", "all").CombinedOutput()
	if err != nil {
		usage, err = exec.Command(binary, "-h").CombinedOutput()
	}
	if err != nil {
		return nil, fmt.Errorf("%s -h: %w", binary, err)
	}
	has := make(map[string]bool)
	for line := range strings.Lines(string(usage)) {
		if fields := strings.Fields(line); len(fields) > 0 && strings.HasPrefix(fields[0], "-") {
			has[strings.TrimSuffix(fields[0], ",")] = true
		}
	}
	return has, nil
}
