//go:build linux

package peers

import (
	"context"
	"net/netip"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
)

// putServices stores the services that every kube-proxy offers, with the backends as endpoints.
func putServices(ctx context.Context, c *clientv3.Client, offered, behind load.Ports) error {
	var ops []clientv3.Op
	for _, s := range []struct {
		name, protocol string
		port, behind   uint16
		backends       int
	}{
		{"echo", "TCP", offered.Echo, behind.Echo, load.BackendHosts},
		{"bulk", "TCP", offered.Bulk, behind.Bulk, load.BackendHosts},
		{"udp", "UDP", offered.UDP, behind.UDP, load.BackendHosts},
		{"stamp", "UDP", offered.Stamp, behind.Stamp, 1},
	} {
		ops = append(ops, offer(s.name, s.protocol, s.port, load.BackendsAt(s.behind)[:s.backends])...)
	}
	return measure.Store(ctx, c, len(ops), ops...)
}

// offer is what stores one service with its endpoints.
func offer(name, protocol string, port uint16, endpoints []netip.AddrPort) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpPut(registry.SpecsPrefix+name, measure.ServiceRecord(name, protocol, port)),
		clientv3.OpPut(registry.EndpointsPrefix+name, measure.EndpointsRecord(name, endpoints)),
	}
}
