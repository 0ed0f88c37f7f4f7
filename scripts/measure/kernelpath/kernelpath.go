//go:build linux

package kernelpath

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/measure"
)

// A way is how the load gets to the backend.
type way struct {
	subject measure.Subject
	at      string // where clients connect to
	old     bool   // by the earlier build
}

var ways = []way{
	{subject: measure.Subject{Name: "direct"}, at: fmt.Sprintf("%s:%d", backendAddr, echoPort)},
	{subject: measure.Subject{Name: "rule", Peer: true}, at: fmt.Sprintf("%s:%d", nodeToClient, rulePort)},
	{subject: measure.Subject{Name: "kernel", Ours: true}, at: fmt.Sprintf("%s:%d", nodeToClient, kernelPort)},
	{subject: measure.Subject{Name: "userspace"}, at: fmt.Sprintf("%s:%d", nodeToClient, userspacePort)},
}

// asBefore is the kernel for the earlier build.
var asBefore = way{measure.Subject{Name: "old"}, fmt.Sprintf("%s:%d", nodeToClient, kernelPort), true}

var (
	rows = []struct{ name, title string }{
		{"echo", "64 B there and back, on 16 TCP connections"},
		{"connect", "connect, 64 B there and back, reset; 16 at a time"},
		{"udp", "64 B there and back, over UDP by 16 clients"},
	}
	columns = []measure.Metric{measure.Column("rate", "ops/s", 1), measure.Column("p99", "p99 us", 1e6)}
	bars    = []measure.Bar{{Key: "rate", To: "rule", Is: measure.AtLeast, Bar: 0.95}, {Key: "p99", To: "rule", Is: measure.AtMost, Bar: 1.15}}
	oldBars = []measure.Bar{{Key: "rate", To: "old", Is: measure.AtLeast, Bar: 0.97}}
)

type bench struct {
	*measure.Site
	opts            options
	client, backend *machine
	proxy           *process.Process
	serving         string // the binary of proxy; empty: its start has failed
}

func (b *bench) end() {
	for _, m := range []*machine{b.client, b.backend} {
		if m != nil {
			m.end()
		}
	}
}

func (b *bench) run(ctx context.Context) error {
	if err := b.build(); err != nil {
		return err
	}
	if err := addRule(ctx); err != nil {
		return err
	}
	if err := b.writeRecords(); err != nil {
		return err
	}
	if err := b.startProxy(ctx, b.opts.Binary); err != nil {
		return err
	}
	ways, bars := ways, bars
	if b.opts.old != "" {
		ways, bars = append(slices.Clone(ways), asBefore), slices.Concat(bars, oldBars)
	}
	var subjects []measure.Subject
	for _, w := range ways {
		subjects = append(subjects, w.subject)
	}
	for _, row := range rows {
		t := measure.NewTable(row.name, row.title, columns, subjects...)
		if err := b.Rounds(ctx, t, b.opts.Rounds, func(ctx context.Context, i int) (s measure.Sample, err error) {
			binary := b.opts.Binary
			if ways[i].old {
				binary = b.opts.old
			}
			if b.serving != binary {
				err = b.startProxy(ctx, binary)
			}
			if err == nil {
				s, err = b.load(row.name, ways[i].at)
			}
			return s, err
		}); err != nil {
			return err
		}
		t.Judge(bars)
		t.Print(os.Stdout)
		if err := b.Report.Add(t, b.JSON); err != nil {
			return err
		}
	}
	return b.Report.Err(os.Stdout, func(v measure.Verdict) bool { return v == measure.Missed })
}

// load has the client send one load.
func (b *bench) load(name, at string) (sample measure.Sample, err error) {
	line, err := b.client.ask(fmt.Sprintf("%s %s %v", name, at, b.opts.window))
	if err == nil {
		err = json.Unmarshal([]byte(line), &sample)
	}
	return sample, err
}

// build makes the network and starts what runs on the other machines.
func (b *bench) build() (err error) {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return err
	}
	if b.backend, err = startMachine(b.Executable, backendRole, true); err != nil {
		return err
	}
	if b.client, err = startMachine(b.Executable, clientRole, !b.opts.local); err != nil {
		return err
	}
	err = b.backend.wire("backend", nodeToBackend, backendAddr)
	if b.opts.local {
		err = errors.Join(err, run("ip", "addr", "add", nodeToClient+"/32", "dev", "lo"))
	} else {
		err = errors.Join(err, b.client.wire("client", nodeToClient, clientAddr))
	}
	if err == nil {
		_, err = b.backend.ask("listen")
	}
	return err
}

// addRule adds the rule written by hand. Its table comes before that of kube-proxy, which has other ports.
func addRule(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`table ip byhand {
  chain pre {
    type nat hook prerouting priority -101
    ip daddr %[1]s meta l4proto { tcp, udp } th dport %[2]d dnat to %[3]s:%[4]d
  }
  chain out {
    type nat hook output priority -101
    ip daddr %[1]s meta l4proto { tcp, udp } th dport %[2]d dnat to %[3]s:%[4]d
  }
  chain post {
    type nat hook postrouting priority 99
    ct status dnat masquerade
  }
}
`, nodeToClient, rulePort, backendAddr, echoPort))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}
