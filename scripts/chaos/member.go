package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"kubeproxy/internal/etcdmember"
)

// A member is one etcd, a process of its own, and the fault proxy on the way to it. Its addresses stay the
// same through every restart. Its methods are for one goroutine.
type member struct {
	*etcdmember.Member
	faultProxy *faultProxy
	extra      []string // arguments of the next start, beside those of all
}

// The ports of etcd, fault proxies and the grpc-proxy lie between these: below those of proxytest, whose tests may run beside.
const (
	lowPort  = 3000
	highPort = 6000
)

func newMember(name, dir, logs string) (*member, error) {
	etcd, err := etcdmember.New(name, dir, logs, lowPort, highPort,
		// An election takes half of the usual time, so that a lost leader costs less of a short run.
		"--heartbeat-interval=100", "--election-timeout=500",
		"--auth-token-ttl=5", "--bcrypt-cost=4", // tokens that expire while one looks; cheap passwords
		"--log-level=warn")
	if err != nil {
		return nil, err
	}
	m := &member{Member: etcd}
	m.faultProxy, err = newFaultProxy(m.Client)
	return m, err
}

// start starts the process. When it returns etcd is not ready yet: that may take other members.
func (m *member) start(flags ...string) error {
	if m.running() {
		return nil
	}
	return m.Launch(slices.Concat(flags, m.extra)...)
}

func (m *member) running() bool { return m.Running() == nil }

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
			return m.Running()
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w: %w\n%s", m.Name, context.Cause(ctx), err, m.LastWords())
		}
		_ = sleep(ctx, 10*time.Millisecond) // if it ends early, so does the loop
	}
}

// ask asks the member for a linearizable read, over a new connection.
func (m *member) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := dialEtcd(ctx, m.Client)
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

// sleep waits, and returns early with an error when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
