//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubeproxy/scripts/internal/measure"
)

// A usage is what was used and sent up to a moment. Etcd's metrics cost it some milliseconds, so its processor
// time is read on both sides of the question, and what lies between two usages includes neither question.
type usage struct {
	at, asked       time.Duration // since the machine has started: before etcd was asked, and after
	etcd, etcdAsked time.Duration // its processor time
	through         time.Duration // the grpc-proxy's, if there is one
	fleet           time.Duration // that of all nodes
	sent, received  float64       // by etcd, in bytes: what it says itself, before HTTP/2 and TLS
	watchers        float64
	memory          float64 // etcd's own, in bytes
}

// What etcd says of itself, by the names of its metrics.
const (
	sentBytes     = "etcd_network_client_grpc_sent_bytes_total"
	receivedBytes = "etcd_network_client_grpc_received_bytes_total"
	watchers      = "etcd_debugging_mvcc_watcher_total"
)

// use reads what was used so far.
func (l *lab) use(ctx context.Context, f fleet) (usage, error) {
	u := usage{at: measure.SinceBoot()}
	pid := []int{l.etcd.PID()}
	var err error
	if u.etcd, err = measure.CPUOf(pid); err != nil {
		return u, err
	}
	if u.fleet, err = measure.CPUOf(f.pids()); err != nil {
		return u, err
	}
	if l.through != nil {
		if u.through, err = measure.CPUOf([]int{l.through.PID()}); err != nil {
			return u, err
		}
	}
	if u.memory, err = measure.AnonymousMemory(pid); err != nil {
		return u, err
	}
	said, err := scrape(ctx, l.etcd.URL+"/metrics", sentBytes, receivedBytes, watchers)
	if err != nil {
		return u, fmt.Errorf("etcd: %w", err)
	}
	u.sent, u.received, u.watchers = said[sentBytes], said[receivedBytes], said[watchers]
	u.asked = measure.SinceBoot()
	u.etcdAsked, err = measure.CPUOf(pid)
	return u, err
}

// since gives what was used after an earlier moment, and in how many seconds. Memory and watchers stay what
// they are now.
func (u usage) since(before usage) (usage, float64) {
	u.etcd -= before.etcdAsked
	u.through -= before.through
	u.fleet -= before.fleet
	u.sent -= before.sent
	u.received -= before.received
	return u, (u.at - before.asked).Seconds()
}

// scrape reads metrics at a URL, each the sum of its series.
func scrape(ctx context.Context, url string, names ...string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return parseMetrics(resp.Body, names...)
}

// parseMetrics reads Prometheus's text format: NAME{LABELS} VALUE.
func parseMetrics(text io.Reader, names ...string) (map[string]float64, error) {
	found := make(map[string]float64)
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		name := line[:len(line)-len(strings.TrimLeft(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:"))]
		if !slices.Contains(names, name) {
			continue
		}
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		found[name] += v
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, ok := found[name]; !ok {
			return nil, fmt.Errorf("there is no metric %s", name)
		}
	}
	return found, nil
}
