package faults

import (
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/internal/backoff"
	"kubeproxy/internal/process"
)

// A Member is one etcd, a process of its own, and the fault proxy on the way to it. Its addresses stay the same through every
// restart.
type Member struct {
	*process.Etcd
	Way   *Proxy   // of the proxy under test
	Extra []string // arguments of the next start, beside those of all
}

// The ports of etcd, fault proxies and the grpc-proxy lie between these: below those of proxytest, whose tests may run at the same time.
const (
	lowPort  = 3000
	highPort = 6000
)

func newMember(name, dir, logs string) (*Member, error) {
	etcd, err := process.NewEtcd(name, dir, logs, lowPort, highPort,
		// An election takes half of the usual time, so that a lost leader costs less of a short run.
		"--heartbeat-interval=100", "--election-timeout=500",
		"--auth-token-ttl=5", "--bcrypt-cost=4", // tokens expire within a fault; passwords cost little
		"--log-level=warn")
	if err != nil {
		return nil, err
	}
	m := &Member{Etcd: etcd}
	m.Way, err = NewProxy(m.Client, lowPort, highPort)
	return m, err
}

// start starts the process. When it returns, etcd does not answer yet: it may need other members for that.
func (m *Member) start(flags ...string) error {
	if m.IsRunning() {
		return nil
	}
	return m.Launch(slices.Concat(flags, m.Extra)...)
}

// IsRunning reports whether the process runs.
func (m *Member) IsRunning() bool { return m.Running() == nil }

// AwaitAnswer waits until the member answers a linearizable read: it runs, and knows a leader with a majority.
func (m *Member) AwaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("no answer for %v", startTimeout))
	defer cancel()
	for {
		err := m.ask(ctx)
		switch {
		case err == nil:
			return nil
		case !m.IsRunning():
			return m.Running()
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w: %w\n%s", m.Name, context.Cause(ctx), err, m.LastWords())
		}
		backoff.Sleep(ctx, 10*time.Millisecond)
	}
}

// ask makes a linearizable read, over a new connection.
func (m *Member) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := Dial(ctx, m.Client)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Get(ctx, "/", clientv3.WithCountOnly())
	return err
}

// startTimeout bounds how long an etcd may take to answer after a start. A loaded machine is slow. An etcd that will never answer exits,
// which AwaitAnswer reports at once.
const startTimeout = 40 * time.Second
