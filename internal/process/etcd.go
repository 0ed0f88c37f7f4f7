package process

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// EtcdBinary builds etcd from the version that go.mod pins, Etcdutl its repair tool, and KubeProxyBinary the kube-proxy of this tree, once for
// each process. They return the path; the Go build cache keeps the result.
var (
	EtcdBinary      = sync.OnceValues(func() (string, error) { return buildTool("go.etcd.io/etcd/server/v3") })
	Etcdutl         = sync.OnceValues(func() (string, error) { return buildTool("go.etcd.io/etcd/etcdutl/v3") })
	KubeProxyBinary = sync.OnceValues(func() (string, error) { return buildTool("kubeproxy/cmd/kube-proxy") })
)

// buildTool builds one of go.mod's tools. CGO is off, as in plain builds, so that a race build of the tests does not compile
// a second etcd.
func buildTool(tool string) (string, error) {
	cmd := exec.Command("go", "tool", "-n", tool)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build %s: %w: %s", tool, err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// EtcdStartTimeout bounds how long an etcd may take to be ready. A loaded machine is slow; an etcd that will never be ready
// exits, which is noticed at once.
const EtcdStartTimeout = time.Minute

// An Etcd is one member of etcd. It is what an etcd in the field is: it can be killed, frozen, and started again at the same addresses
// with the same data. Its methods are for one goroutine.
type Etcd struct {
	Name   string // among the members of its cluster, and of its log
	Data   string // the data directory that the next start uses
	Logs   string // the directory of its log
	Path   string // of the program; empty: [EtcdBinary]
	Client string // host and port for clients
	Peer   string // host and port for other members
	TLS    bool   // clients use https
	Flags  []string

	*Process // nil before the first start
}

// NewEtcd chooses free ports between low and high, and starts nothing. The log goes to a file in logs.
func NewEtcd(name, data, logs string, low, high uint16, flags ...string) (*Etcd, error) {
	m := &Etcd{Name: name, Data: data, Logs: logs, Flags: flags}
	return m, m.ChoosePorts(low, high)
}

// ChoosePorts gives a member that does not run other addresses.
func (m *Etcd) ChoosePorts(low, high uint16) error {
	base, err := FreePorts(low, high, 2)
	m.Client, m.Peer = fmt.Sprintf("127.0.0.1:%d", base), fmt.Sprintf("127.0.0.1:%d", base+1)
	return err
}

// URL is the address for clients.
func (m *Etcd) URL() string {
	if m.TLS {
		return "https://" + m.Client
	}
	return "http://" + m.Client
}

// PeerURL is the address for other members.
func (m *Etcd) PeerURL() string { return "http://" + m.Peer }

// Launch starts the process with more flags, and does not wait for it. Alone it is a cluster of one member.
func (m *Etcd) Launch(flags ...string) error {
	if m.Running() == nil {
		return errors.New("etcd is already running")
	}
	path := m.Path
	if path == "" {
		var err error
		if path, err = EtcdBinary(); err != nil {
			return err
		}
	}
	args := append([]string{path,
		"--name=" + m.Name, "--data-dir=" + m.Data,
		"--listen-client-urls=" + m.URL(), "--advertise-client-urls=" + m.URL(),
		"--listen-peer-urls=" + m.PeerURL(), "--initial-advertise-peer-urls=" + m.PeerURL(), "--initial-cluster=" + m.Name + "=" + m.PeerURL(),
		"--unsafe-no-fsync", // what survives is what the kernel was given; a killed process loses nothing of that
		"--log-level=info",
	}, m.Flags...)
	var err error
	m.Process, err = Start(m.Logs, m.Name, append(args, flags...)...)
	return err
}

// Start starts the process, and waits until it serves clients.
func (m *Etcd) Start(flags ...string) error {
	if err := m.Launch(flags...); err != nil {
		return err
	}
	err := m.Await(EtcdStartTimeout, func() bool { return m.Said(`"ready to serve client requests"`) })
	if err != nil {
		m.Kill()
	}
	return err
}

// StartGRPCProxy starts etcd's own grpc-proxy before members, given by their hosts and ports, at a free port between low
// and high. To clients it is an etcd that never answers a progress request, and whose watches outlive the etcd behind it.
// It keeps its own leases and locks nowhere: there is no data directory. Its log goes to a file in logs.
func StartGRPCProxy(logs, path string, low, high uint16, members ...string) (addr string, p *Process, err error) {
	if path == "" {
		if path, err = EtcdBinary(); err != nil {
			return "", nil, err
		}
	}
	port, err := FreePorts(low, high, 1)
	if err != nil {
		return "", nil, err
	}
	addr = fmt.Sprintf("127.0.0.1:%d", port)
	p, err = Start(logs, "grpc-proxy", path, "grpc-proxy", "start", "--endpoints="+strings.Join(members, ","), "--listen-addr="+addr)
	if err != nil {
		return "", nil, err
	}
	err = p.Await(EtcdStartTimeout, func() bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		return err == nil && conn.Close() == nil
	})
	if err != nil {
		p.Kill()
	}
	return addr, p, err
}
