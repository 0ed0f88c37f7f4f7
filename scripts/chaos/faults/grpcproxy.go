package faults

import (
	"context"
	"math/rand/v2"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/try"
)

func init() {
	all = append(all,
		Fault{Name: "grpc-proxy", About: "etcd's grpc-proxy comes in between, hides a restart behind it, and goes", inject: grpcProxy})
}

// grpcProxy is an installation that puts etcd's own proxy before its members, and takes it away again.
// To the proxy under test it is an etcd that never answers a progress request, and whose watches
// outlive the member behind it: they are resumed out of sight.
func grpcProxy(ctx context.Context, c Target, r *rand.Rand) (err error) {
	defer try.Catch(&err)
	changes := 1 + r.IntN(30)
	m := c.Members[r.IntN(len(c.Members))]
	c.Logf("a grpc-proxy for 2 × %d changes, with a restart of %s in between", changes, m.Name)
	try.Do(c.AddGRPCProxy())
	defer c.RemoveGRPCProxy()
	try.Do(c.Write(ctx, changes))
	m.Kill()
	try.Do(c.Start(ctx))
	return c.Write(ctx, changes)
}

// AddGRPCProxy starts etcd's grpc-proxy, and has the fault proxies lead to it instead of to the members.
func (c *Cluster) AddGRPCProxy() error {
	addr, through, err := process.StartGRPCProxy(c.dir, "", lowPort, highPort, c.addrs()...)
	if err != nil {
		return err
	}
	c.through = through
	c.EachWay(func(p *Proxy) { p.Redirect(addr) })
	return nil
}

// RemoveGRPCProxy has the fault proxies lead to the members again, and ends the grpc-proxy, if there is one.
func (c *Cluster) RemoveGRPCProxy() {
	if c.through == nil {
		return
	}
	for _, m := range c.Members {
		m.Way.Redirect(m.Client)
	}
	c.through.Kill()
	c.through = nil
}
