package forwarding

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatDoesNotForwardIsNamed(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings string // set to 0
		want     [2]string
	}{
		{"all forward", "", [2]string{}},
		{"IPv4 does not", "ipv4/ip_forward", [2]string{"set net.ipv4.ip_forward=1", ""}},
		{"IPv6 does not", "ipv6/conf/all/forwarding", [2]string{"", "set net.ipv6.conf.all.forwarding=1"}},
		{"an interface does not", "ipv4/conf/eth1/forwarding", [2]string{"come in by eth1: set net.ipv4.conf.eth1.forwarding=1", ""}},
		{"an interface that is down does not", "ipv4/conf/down/forwarding", [2]string{}},
		{"the loopback does not", "ipv4/conf/lo/forwarding", [2]string{}},
		{"new interfaces will not", "ipv4/conf/default/forwarding", [2]string{}},
	} {
		dir := t.TempDir()
		for _, s := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv4/conf/all/forwarding", "ipv4/conf/default/forwarding",
			"ipv4/conf/lo/forwarding", "ipv4/conf/eth0/forwarding", "ipv4/conf/eth1/forwarding", "ipv4/conf/down/forwarding"} {
			value := "1\n"
			if s == c.settings {
				value = "0\n"
			}
			path := filepath.Join(dir, s)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for f, err := range missingBy(dir, func(device string) bool { return device != "down" }) {
			if (err == nil) != (c.want[f] == "") || err != nil && !strings.Contains(err.Error(), c.want[f]) {
				t.Errorf("%s: IPv%d: %v; want %q", c.name, 4+2*f, err, c.want[f])
			}
		}
	}
}
