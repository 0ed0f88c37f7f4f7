//go:build linux

package measure

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
)

// EtcdBinary builds etcd from the version that go.mod pins and gives its path; the Go build cache
// keeps it.
func EtcdBinary() (string, error) {
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

// An Etcd is one member that is a cluster of its own. Its addresses and its data stay the same through
// every restart.
type Etcd struct {
	URL    string // that it serves clients at
	Binary string // that it runs
	*Process
	ps   *Processes
	args []string
}

// NewEtcd chooses the addresses of an etcd without data, and starts nothing.
func NewEtcd(ps *Processes, binary string) (*Etcd, error) {
	if binary == "" {
		var err error
		if binary, err = EtcdBinary(); err != nil {
			return nil, err
		}
	}
	base, err := FreePorts(netip.MustParseAddr("127.0.0.1"), 2)
	if err != nil {
		return nil, err
	}
	url, peer := fmt.Sprintf("http://127.0.0.1:%d", base), fmt.Sprintf("http://127.0.0.1:%d", base+1)
	return &Etcd{URL: url, Binary: binary, ps: ps, args: []string{"--name=default", "--data-dir=" + filepath.Join(ps.Dir, "etcd"),
		"--listen-client-urls=" + url, "--advertise-client-urls=" + url,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
		"--unsafe-no-fsync", "--log-level=info"}}, nil
}

// Start starts it, again if it was killed, and waits until it serves clients.
func (e *Etcd) Start() error {
	var err error
	if e.Process, err = e.ps.Start("etcd", append([]string{e.Binary}, e.args...)...); err != nil {
		return err
	}
	return e.Await(time.Minute, func() bool { return e.Said("ready to serve client requests") })
}

// StartEtcd starts an etcd and gives the URL that it serves clients at.
func StartEtcd(ps *Processes, binary string) (string, error) {
	e, err := NewEtcd(ps, binary)
	if err != nil {
		return "", err
	}
	return e.URL, e.Start()
}

// NewEtcdClient makes a client that says nothing of its own.
func NewEtcdClient(url string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{url}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
}

// PutTimeout bounds one write to etcd.
const PutTimeout = 10 * time.Second

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
func StartWatcher(ps *Processes, executable, url, prefix string) (*Process, error) {
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
		_, _ = os.Stdin.Read(make([]byte, 1)) // nobody writes: it returns at the end
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
