//go:build linux

package fleet

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"kubeproxy/scripts/internal/measure"
)

// A usage is what was used and sent up to a moment. Etcd's metrics cost it some milliseconds, so its processor
// time is read on both sides of the question, and what lies between two usages includes neither question.
type usage struct {
	at, asked       time.Duration // since the machine has started: before etcd was asked, and after
	etcd, etcdAsked time.Duration // its processor time
	through         time.Duration // that of what is in between, if anything
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
	all, err := measure.Scrape(ctx, netip.MustParseAddrPort(l.etcd.Client))
	if err != nil {
		return u, fmt.Errorf("etcd: %w", err)
	}
	said, err := all.Must(sentBytes, receivedBytes, watchers)
	if err != nil {
		return u, fmt.Errorf("etcd: %w", err)
	}
	u.sent, u.received, u.watchers = said[0], said[1], said[2]
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
