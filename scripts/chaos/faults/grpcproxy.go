package faults

import (
	"context"
	"math/rand/v2"

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
