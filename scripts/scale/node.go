//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"kubeproxy/scripts/internal/measure"
)

// A node is one kube-proxy.
type node struct {
	host    netip.Addr
	process *measure.Process
	pids    []int
	started time.Duration // from exec until all listened
}

// startNode starts kube-proxy with its default flags, and returns when every port of the registry is open.
// It answers operators at its own address, as a node does.
func startNode(ctx context.Context, b *bench, s *stock, flags ...string) (*node, error) {
	n := &node{host: netip.AddrFrom4([4]byte{127, 0, 8, 1})} // nobody else's
	cmd := []string{b.o.binary, "-logtostderr", "-etcd_servers=" + s.url, "-bind_address=" + n.host.String(), "-drain_timeout=0",
		"-metrics_bind_address=" + n.at(10249), "-healthz_bind_address=" + n.at(10256)}
	began := time.Now()
	var err error
	if n.process, err = b.ps.Start("kube-proxy", append(append(cmd, b.o.flags...), flags...)...); err != nil {
		return nil, err
	}
	n.pids = []int{n.process.PID()}
	for open := 0; open < s.size.services; {
		if err := n.process.Running(); err != nil {
			return nil, err
		}
		if time.Since(began) > time.Minute {
			n.process.Stop()
			return nil, fmt.Errorf("after a minute only %d of %d ports are open", open, s.size.services)
		}
		// First what is cheap to ask; then what nobody can be wrong about.
		if _, err := n.get(ctx, 10256, "/readyz"); err != nil {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		n.started = time.Since(began)
		if open, err = listening(n.host); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (n *node) at(port uint16) string { return netip.AddrPortFrom(n.host, port).String() }

var client = http.Client{Timeout: time.Minute}

func (n *node) get(ctx context.Context, port uint16, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.at(port)+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return string(text), err
}

// listening counts the TCP ports from firstPort on at which somebody listens on an address.
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
	if err := json.Unmarshal([]byte(text), &z); err != nil {
		return 0, fmt.Errorf("/configz: %w", err)
	}
	if z.Etcd.Divergences > 0 {
		return 0, fmt.Errorf("%d divergences", z.Etcd.Divergences)
	}
	return z.Etcd.Resyncs, nil
}

// goroutines tells how many the node has.
func (n *node) goroutines(ctx context.Context) (float64, error) {
	text, err := n.get(ctx, 10249, "/metrics")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(text, "\ngo_goroutines ")
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseFloat(line, 64)
}

// heap keeps a profile of the node's memory, if that is wanted.
func (n *node) heap(ctx context.Context, b *bench, name string) error {
	if b.o.profile == "" {
		return nil
	}
	text, err := n.get(ctx, 10249, "/debug/pprof/heap?gc=1")
	return errors.Join(err, os.WriteFile(filepath.Join(b.o.profile, name+".pprof"), []byte(text), 0o644))
}

// profile has the node profiled until stop is called, if that is wanted.
func (n *node) profile(ctx context.Context, b *bench, name string) (stop func() error) {
	if b.o.profile == "" {
		return func() error { return nil }
	}
	const long = 8 * time.Second
	done := make(chan error, 1)
	go func() {
		text, err := n.get(ctx, 10249, fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(long.Seconds())))
		done <- errors.Join(err, os.WriteFile(filepath.Join(b.o.profile, name+".pprof"), []byte(text), 0o644))
	}()
	return func() error { return <-done }
}
