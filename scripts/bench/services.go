//go:build linux

package main

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
)

// putServices stores the services that every kube-proxy offers, with the backends as endpoints.
func putServices(ctx context.Context, c *clientv3.Client, offered, behind load.Ports) error {
	ctx, cancel := context.WithTimeout(ctx, measure.PutTimeout)
	defer cancel()
	var ops []clientv3.Op
	put := func(key, value string) { ops = append(ops, clientv3.OpPut(key, value)) }
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
		put(registry.SpecsPrefix+s.name, measure.ServiceRecord(s.name, s.protocol, s.port))
		put(registry.EndpointsPrefix+s.name, measure.EndpointsRecord(s.name, load.BackendsAt(s.behind)[:s.backends]))
	}
	_, err := c.Txn(ctx).Then(ops...).Commit()
	return err
}
