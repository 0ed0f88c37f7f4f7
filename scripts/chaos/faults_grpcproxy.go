package main

import (
	"context"
	"math/rand/v2"

	"kubeproxy/internal/etcdmember"
	"kubeproxy/scripts/internal/try"
)

func init() {
	faults = append(faults,
		fault{name: "grpc-proxy", about: "etcd's grpc-proxy comes in between, hides a restart behind it, and goes", inject: grpcProxy})
}

// grpcProxy is an installation that puts etcd's own proxy before its members, and takes it away again.
// To the proxy under test it is an etcd that never answers a progress request, and whose watches
// outlive the member behind it: they are resumed out of sight.
func grpcProxy(ctx context.Context, c *cluster, r *rand.Rand) (err error) {
	defer try.Catch(&err)
	changes := 1 + r.IntN(30)
	m := c.members[r.IntN(len(c.members))]
	c.stage.logf("a grpc-proxy for 2 × %d changes, with a restart of %s in between", changes, m.Name)
	addr := try.Get(c.startGRPCProxy())
	c.each(func(b *faultProxy) { b.redirect(addr) })
	try.Do(c.stage.write(ctx, changes))
	m.Kill()
	try.Do(c.start(ctx))
	return firstError(c.stage.write(ctx, changes), c.connectDirectly())
}

func (c *cluster) startGRPCProxy() (addr string, err error) {
	addr, c.through, err = etcdmember.StartGRPCProxy(c.dir, "", lowPort, highPort, c.addrs()...)
	return addr, err
}

// connectDirectly takes the grpc-proxy away, if there is one.
func (c *cluster) connectDirectly() error {
	if c.through == nil {
		return nil
	}
	for _, m := range c.members {
		m.faultProxy.redirect(m.Client)
	}
	c.through.Kill()
	c.through = nil
	return nil
}
