//go:build linux

package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"kubeproxy/internal/process"
)

// FreePorts finds n ports in a row, and gives the first. They lie below those of proxytest, whose tests may run beside.
func FreePorts(n int) (uint16, error) { return process.FreePorts(6000, 10000, n) }

// StartEtcd starts an etcd that is a cluster of its own, without data. Its program is binary or, if that is empty, built.
func StartEtcd(ps *process.Group, binary string) (*process.Etcd, error) {
	return StartEtcdAt(ps, binary, "127.0.0.1")
}

// StartEtcdAt starts an etcd whose clients reach it at an address.
func StartEtcdAt(ps *process.Group, binary, ip string) (*process.Etcd, error) {
	e, err := process.NewEtcd("etcd", filepath.Join(ps.Dir, "etcd"), ps.Dir, 6000, 10000)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(e.Client)
	e.Path, e.Client = binary, net.JoinHostPort(ip, port)
	ps.OnStop(func() { e.Stop() })
	return e, e.Start()
}

// NewEtcdClient makes a client that says nothing of its own.
func NewEtcdClient(url string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{url}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
}

// PutTimeout bounds one write to etcd.
const PutTimeout = 10 * time.Second

// Store writes many keys, with at most so many operations in one transaction: etcd takes 128, and 1.5 MiB.
func Store(ctx context.Context, c *clientv3.Client, most int, ops ...clientv3.Op) error {
	for part := range slices.Chunk(ops, most) {
		put, cancel := context.WithTimeout(ctx, PutTimeout)
		_, err := c.Txn(put).Then(part...).Commit()
		cancel()
		if err != nil {
			return fmt.Errorf("store %d records: %w", len(ops), err)
		}
	}
	return nil
}

// ServiceRecord says at which port a service is offered ("TCP" or "UDP").
func ServiceRecord(name, protocol string, port uint16) string {
	return fmt.Sprintf(`{"kind":"Service","id":%q,"apiVersion":"v1beta1","port":%d,"protocol":%q,"selector":{"name":%q},"containerPort":0}`,
		name, port, protocol, name)
}

// EndpointsRecord says where the backends of a service answer.
func EndpointsRecord(name string, addrs []netip.AddrPort) string {
	list, err := json.Marshal(addrs)
	if err != nil {
		panic(err) // addresses are text
	}
	return fmt.Sprintf(`{"kind":"Endpoints","id":%q,"apiVersion":"v1beta1","endpoints":%s}`, name, list)
}

// StartWatcher starts a bare watcher and waits until it watches. The executable is a program that calls
// [RunWatcher] when its arguments are "watcher", the URL and the prefix.
func StartWatcher(ps *process.Group, executable, url, prefix string) (*process.Process, error) {
	p, err := ps.Start("watcher", executable, "watcher", url, prefix)
	if err != nil {
		return nil, err
	}
	return p, p.Await(10*time.Second, func() bool { return p.Said("watching") })
}

// RunWatcher is the bare watcher: a process that does nothing but watch the keys that begin with a prefix, and
// print for each event its revision and when it came, until standard input ends.
func RunWatcher(url, prefix string) error {
	c, err := NewEtcdClient(url)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // it returns when standard input ends
		cancel()
	}()
	events := c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	for r := range events {
		at := SinceBoot()
		if err := r.Err(); err != nil {
			return err
		}
		if r.Created {
			fmt.Println("watching")
		}
		for _, ev := range r.Events {
			fmt.Println("event", ev.Kv.ModRevision, at.Nanoseconds())
		}
	}
	return nil
}

// ReadEvents takes what a watcher has printed: when the event of each revision came.
func ReadEvents(output string) (map[int64]time.Duration, error) {
	text, err := os.ReadFile(output)
	if err != nil {
		return nil, err
	}
	came := make(map[int64]time.Duration)
	for line := range strings.Lines(string(text)) {
		var revision, at int64
		if n, _ := fmt.Sscanf(line, "event %d %d", &revision, &at); n == 2 {
			came[revision] = time.Duration(at)
		}
	}
	return came, nil
}
