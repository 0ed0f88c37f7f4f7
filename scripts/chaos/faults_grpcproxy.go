package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"time"
)

func init() {
	faults = append(faults,
		fault{name: "grpc-proxy", about: "etcd's grpc-proxy comes in between, hides a restart behind it, and goes", inject: grpcProxy})
}

// grpcProxy is an installation that puts etcd's own proxy before its members, and takes it away again.
// To the proxy under test it is an etcd that never answers a progress request, and whose watches
// outlive the member behind it: they are resumed out of sight.
func grpcProxy(ctx context.Context, c *cluster, r *rand.Rand) error {
	changes := 1 + r.IntN(30)
	m := c.members[r.IntN(len(c.members))]
	c.stage.logf("a grpc-proxy for 2 × %d changes, with a restart of %s in between", changes, m.name)
	addr, err := c.startGRPCProxy(ctx)
	if err != nil {
		return err
	}
	c.each(func(b *breaker) { b.redirect(addr) })
	if err := c.stage.write(ctx, changes); err != nil {
		return err
	}
	m.kill()
	if err := c.start(ctx); err != nil {
		return err
	}
	return firstError(c.stage.write(ctx, changes), c.connectDirectly())
}

func (c *cluster) startGRPCProxy(ctx context.Context) (addr string, err error) {
	path, err := etcdBinary()
	if err != nil {
		return "", err
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}
	addr = fmt.Sprintf("127.0.0.1:%d", port)
	// It keeps its own leases and locks nowhere: there is no data directory.
	if c.through, err = startProcess(path, "grpc-proxy", "start", "--endpoints="+strings.Join(c.addrs(), ","), "--listen-addr="+addr); err != nil {
		return "", err
	}
	for deadline := time.Now().Add(startTimeout); ; {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return addr, conn.Close()
		}
		if c.through.gone() || time.Now().After(deadline) {
			return "", fmt.Errorf("no grpc-proxy: %w: %s", err, c.through.output())
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return "", err
		}
	}
}

// connectDirectly takes the grpc-proxy away, if there is one.
func (c *cluster) connectDirectly() error {
	if c.through == nil {
		return nil
	}
	for _, m := range c.members {
		m.breaker.redirect(m.addr)
	}
	c.through.end(syscall.SIGKILL)
	c.through = nil
	return nil
}
