//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"kubeproxy/registry"
)

// etcdBinary builds etcd from the version that go.mod pins and gives its path; the Go build cache
// keeps it.
func etcdBinary() (string, error) {
	cmd := exec.Command("go", "tool", "-n", "go.etcd.io/etcd/server/v3")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build etcd (or say where one is with -etcd): %w: %s", err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// startEtcd starts an etcd and gives the URL that it serves clients at.
func startEtcd(ps *processes, binary string) (string, error) {
	if binary == "" {
		var err error
		if binary, err = etcdBinary(); err != nil {
			return "", err
		}
	}
	base, err := freePorts(netip.MustParseAddr("127.0.0.1"), 2)
	if err != nil {
		return "", err
	}
	url, peer := fmt.Sprintf("http://127.0.0.1:%d", base), fmt.Sprintf("http://127.0.0.1:%d", base+1)
	p, err := ps.start("etcd", binary, "--name=default", "--data-dir="+filepath.Join(ps.dir, "etcd"),
		"--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--unsafe-no-fsync", "--log-level=info")
	if err != nil {
		return "", err
	}
	return url, p.await(time.Minute, func() bool { return p.said("ready to serve client requests") })
}

func newClient(url string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{url}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
}

// putTimeout bounds one write to etcd.
const putTimeout = 10 * time.Second

// putServices stores the services that every kube-proxy offers, with the backends as endpoints.
func putServices(ctx context.Context, c *clientv3.Client, offered, behind ports) error {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	var ops []clientv3.Op
	put := func(key, value string) { ops = append(ops, clientv3.OpPut(key, value)) }
	for _, s := range []struct {
		name, protocol string
		port, behind   uint16
		backends       int
	}{
		{"echo", "TCP", offered.echo, behind.echo, backendHosts},
		{"bulk", "TCP", offered.bulk, behind.bulk, backendHosts},
		{"udp", "UDP", offered.udp, behind.udp, backendHosts},
		{"stamp", "UDP", offered.stamp, behind.stamp, 1},
	} {
		put(registry.SpecsPrefix+s.name, fmt.Sprintf(
			`{"kind":"Service","id":%q,"apiVersion":"v1beta1","port":%d,"protocol":%q,"selector":{"name":%q},"containerPort":0}`,
			s.name, s.port, s.protocol, s.name))
		put(registry.EndpointsPrefix+s.name, endpointsRecord(s.name, backendsAt(s.behind)[:s.backends]))
	}
	_, err := c.Txn(ctx).Then(ops...).Commit()
	return err
}

// endpointsRecord says where the backends of a service answer.
func endpointsRecord(name string, addrs []netip.AddrPort) string {
	list, err := json.Marshal(addrs)
	if err != nil {
		panic(err) // addresses are text
	}
	return fmt.Sprintf(`{"kind":"Endpoints","id":%q,"apiVersion":"v1beta1","endpoints":%s}`, name, list)
}

// runWatcher is the bare watcher: a process that does nothing but watch a key, and print for each
// event its revision and when it came, until standard input ends.
func runWatcher(url, key string) error {
	c, err := newClient(url)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // nobody writes: it returns at the end
		cancel()
	}()
	events := c.Watch(ctx, key, clientv3.WithCreatedNotify())
	for r := range events {
		at := sinceBoot()
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

// readEvents takes what a watcher has printed: when the event of each revision came.
func readEvents(output string) (map[int64]time.Duration, error) {
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
