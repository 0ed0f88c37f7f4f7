package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// A member is one etcd, a process of its own, and the breaker on the way to it. Its addresses stay the
// same through every restart. Its methods are for one goroutine.
type member struct {
	name    string
	dir     string // the data directory that the next start uses
	addr    string // for clients
	peer    string // for other members
	breaker *breaker
	extra   []string // arguments of the next start, beside those of all
	process *process
}

func newMember(name, dir string) (*member, error) {
	m := &member{name: name, dir: dir}
	for _, addr := range []*string{&m.addr, &m.peer} {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		*addr = fmt.Sprintf("127.0.0.1:%d", port)
	}
	var err error
	m.breaker, err = newBreaker(m.addr)
	return m, err
}

func (m *member) peerURL() string { return "http://" + m.peer }

// start starts the process. When it returns etcd is not ready yet: that may take other members.
func (m *member) start(flags ...string) error {
	if m.running() {
		return nil
	}
	path, err := etcdBinary()
	if err != nil {
		return err
	}
	m.process, err = startProcess(path, append(append([]string{
		"--name=" + m.name, "--data-dir=" + m.dir,
		"--listen-client-urls=http://" + m.addr, "--advertise-client-urls=http://" + m.addr,
		"--listen-peer-urls=" + m.peerURL(), "--initial-advertise-peer-urls=" + m.peerURL(),
		// What survives a kill is what the kernel was given: nothing here needs a disk that keeps it.
		"--unsafe-no-fsync",
		// An election takes half of the usual time, so that a lost leader costs less of a short run.
		"--heartbeat-interval=100", "--election-timeout=500",
		"--auth-token-ttl=5", "--bcrypt-cost=4", // tokens that expire while one looks; cheap passwords
		"--log-level=warn",
	}, flags...), m.extra...)...)
	if err != nil {
		return fmt.Errorf("start %s: %w", m.name, err)
	}
	return nil
}

func (m *member) running() bool { return m.process != nil && !m.process.gone() }

// kill ends etcd as a power cut would, and waits until it is gone.
func (m *member) kill() { m.process.end(syscall.SIGKILL) }

// pause freezes etcd: its connections stay open, and nobody answers on them.
func (m *member) pause() { m.process.signal(syscall.SIGSTOP) }

// resume lets it go on.
func (m *member) resume() { m.process.signal(syscall.SIGCONT) }

// answers waits until the member answers a linearizable read: it is up, and knows a leader who has a
// majority.
func (m *member) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("no answer for %v", startTimeout))
	defer cancel()
	for {
		err := m.ask(ctx)
		switch {
		case err == nil:
			return nil
		case !m.running():
			return fmt.Errorf("%s ended:\n%s", m.name, m.process.output())
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w: %w\n%s", m.name, context.Cause(ctx), err, m.process.output())
		}
		_ = sleep(ctx, 10*time.Millisecond) // if it ends early, so does the loop
	}
}

// ask asks the member for a linearizable read, over a new connection.
func (m *member) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := dialEtcd(ctx, m.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Get(ctx, "/", clientv3.WithCountOnly())
	return err
}

// startTimeout bounds how long an etcd may take to answer after a start. A loaded machine is slow; an
// etcd that will never answer exits, which is noticed at once.
const startTimeout = 40 * time.Second

// The users of an etcd with authentication. An etcd without it does not ask.
const (
	rootUser, rootPassword   = "root", "root's password"
	proxyUser, proxyPassword = "proxy", "the proxy's password"
)

// dialEtcd returns a client of root's for these members, for as long as ctx lasts. At least one of them
// must answer within a second or two. It connects again soon after a failure: the pauses of gRPC would
// be counted as etcd's.
func dialEtcd(ctx context.Context, addrs ...string) (*clientv3.Client, error) {
	c, err := clientv3.New(clientv3.Config{
		Context:     ctx,
		Endpoints:   addrs,
		DialTimeout: 2 * time.Second,
		Username:    rootUser,
		Password:    rootPassword,
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: time.Second,
		})},
	})
	if err != nil {
		return nil, fmt.Errorf("client for %v: %w", addrs, err)
	}
	return c, nil
}

// A process is one run of a program. It may be used by several goroutines.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed once it is gone

	mu    sync.Mutex // guards lines
	lines []string   // the last of its output
}

func startProcess(path string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), exited: make(chan struct{})}
	endWithParent(p.cmd)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.exited)
		for lines := bufio.NewReader(stderr); ; {
			line, err := lines.ReadString('\n')
			p.mu.Lock()
			if p.lines = append(p.lines, line); len(p.lines) > 20 {
				p.lines = p.lines[1:]
			}
			p.mu.Unlock()
			if err != nil {
				break
			}
		}
		_ = p.cmd.Wait() // how it ended is in its output
	}()
	return p, nil
}

func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *process) signal(sig syscall.Signal) {
	if p != nil && !p.gone() {
		_ = p.cmd.Process.Signal(sig) // it may just have ended
	}
}

// end sends a signal that ends the process, frozen or not, and waits until it is gone.
func (p *process) end(sig syscall.Signal) {
	if p == nil {
		return
	}
	p.signal(sig)
	p.signal(syscall.SIGCONT) // a frozen process hears nothing but SIGKILL
	<-p.exited
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "")
}

// freePort finds a TCP port of 127.0.0.1 that nobody listens on. It looks below the range that kernels
// take the ports of outgoing connections from (32768 and up on Linux), so that none of those occupies
// it while its owner is down, and below that of the tests of the proxy (proxytest), which may run beside.
func freePort() (int, error) {
	for range 1000 {
		port := 3000 + rand.IntN(3000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 3000 and 6000")
}

// sleep waits, and returns early with an error when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
