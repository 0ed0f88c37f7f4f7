//go:build linux

package scale

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// A node is one kube-proxy.
type node struct {
	host    netip.Addr
	process *process.Process
	pids    []int
	started time.Duration // from exec until all listened
}

// startNode starts kube-proxy with its default flags, and returns when every port of the registry is open.
// It answers operators at its own address, as a node does.
func startNode(ctx context.Context, b *bench, s *stock, flags ...string) (_ *node, err error) {
	defer try.Catch(&err)
	n := &node{host: netip.AddrFrom4([4]byte{127, 0, 8, 1})} // of this run alone
	cmd := []string{b.Binary, "-logtostderr", "-etcd_servers=" + s.url, "-bind_address=" + n.host.String(), "-drain_timeout=0",
		"-metrics_bind_address=" + n.at(10249), "-healthz_bind_address=" + n.at(10256)}
	began := time.Now()
	n.process = try.Get(b.Group.Start("kube-proxy", append(append(cmd, b.flags...), flags...)...))
	n.pids = []int{n.process.PID()}
	for open := 0; open < s.size.services; {
		try.Do(n.process.Running())
		if time.Since(began) > time.Minute {
			n.process.Stop()
			return nil, fmt.Errorf("after a minute only %d of %d ports are open", open, s.size.services)
		}
		// First what is cheap to ask; then what is certain.
		if _, err := n.get(ctx, 10256, "/readyz"); err != nil {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		n.started = time.Since(began)
		open = try.Get(listening(n.host))
	}
	return n, nil
}

func (n *node) at(port uint16) string { return netip.AddrPortFrom(n.host, port).String() }

func (n *node) get(ctx context.Context, port uint16, path string) ([]byte, error) {
	return measure.Page(ctx, netip.AddrPortFrom(n.host, port), path)
}

// listening counts the TCP ports from firstPort on at which a listener is open on an address.
func listening(host netip.Addr) (int, error) {
	file, err := os.Open("/proc/net/tcp")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	a := host.As4()
	want := fmt.Sprintf("%02X%02X%02X%02X:", a[3], a[2], a[1], a[0])
	n := 0
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || fields[3] != "0A" || !strings.HasPrefix(fields[1], want) {
			continue
		}
		if port, err := strconv.ParseUint(fields[1][len(want):], 16, 16); err == nil && port >= firstPort {
			n++
		}
	}
	return n, lines.Err()
}

// resyncs tells how many full lists the node has made since it is ready.
func (n *node) resyncs(ctx context.Context) (int, error) {
	text, err := n.get(ctx, 10249, "/configz")
	if err != nil {
		return 0, err
	}
	var z struct {
		Etcd struct{ Resyncs, Divergences int }
	}
	if err := json.Unmarshal(text, &z); err != nil {
		return 0, fmt.Errorf("/configz: %w", err)
	}
	if z.Etcd.Divergences > 0 {
		return 0, fmt.Errorf("%d divergences", z.Etcd.Divergences)
	}
	return z.Etcd.Resyncs, nil
}

// goroutines tells how many the node has.
func (n *node) goroutines(ctx context.Context) (float64, error) {
	all, err := measure.Scrape(ctx, netip.AddrPortFrom(n.host, 10249))
	return all.Sum("go_goroutines"), err
}

// heap keeps a profile of the node's memory, if that is wanted.
func (n *node) heap(ctx context.Context, b *bench, name string) error {
	if b.profile == "" {
		return nil
	}
	text, err := n.get(ctx, 10249, "/debug/pprof/heap?gc=1")
	return errors.Join(err, os.WriteFile(filepath.Join(b.profile, name+".pprof"), text, 0o644))
}

// profile has the node profiled until stop is called, if that is wanted.
func (n *node) profile(ctx context.Context, b *bench, name string) (stop func() error) {
	if b.profile == "" {
		return func() error { return nil }
	}
	const long = 8 * time.Second
	done := make(chan error, 1)
	go func() {
		text, err := n.get(ctx, 10249, fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(long.Seconds())))
		done <- errors.Join(err, os.WriteFile(filepath.Join(b.profile, name+".pprof"), text, 0o644))
	}()
	return func() error { return <-done }
}
