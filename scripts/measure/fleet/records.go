//go:build linux

package fleet

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
	"kubeproxy/scripts/internal/measure"
)

// The records are as long as those that a Kubernetes v0.4 wrote: its fields, and names and addresses of
// a usual length.

func specRecord(name string, port int) string {
	return fmt.Sprintf(`{"kind":"Service","id":%q,"creationTimestamp":"2015-01-02T03:04:05Z","apiVersion":"v1beta1","namespace":"default",`+
		`"port":%d,"protocol":"TCP","labels":{"name":%q},"selector":{"name":%q},"containerPort":8080}`, name, port, name, name)
}

func endpointsRecord(name string, addrs []netip.AddrPort) string {
	var list strings.Builder
	for i, a := range addrs {
		if i > 0 {
			list.WriteByte(',')
		}
		fmt.Fprintf(&list, "%q", a)
	}
	return fmt.Sprintf(`{"kind":"Endpoints","id":%q,"creationTimestamp":"2015-01-02T03:04:05Z","selfLink":"/api/v1beta1/endpoints/%s",`+
		`"resourceVersion":123456,"apiVersion":"v1beta1","endpoints":[%s]}`, name, name, list.String())
}

// serviceName gives all names the same length.
func serviceName(i int) string { return fmt.Sprintf("service-%05d", i) }

// endpointsOf gives the endpoints of the services without clients.
func endpointsOf(service, n int) []netip.AddrPort {
	addrs := make([]netip.AddrPort, n)
	for i := range addrs {
		k := service*n + i
		addrs[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(100 + k>>16&63), byte(k >> 8), byte(k)}), 8080)
	}
	return addrs
}

// putServices fills the registry with n services.
func putServices(ctx context.Context, c *clientv3.Client, n, endpoints int) error {
	var ops []clientv3.Op
	for i := range n {
		name := serviceName(i)
		ops = append(ops,
			clientv3.OpPut(registry.SpecsPrefix+name, specRecord(name, firstPort+i)),
			clientv3.OpPut(registry.EndpointsPrefix+name, endpointsRecord(name, endpointsOf(i, endpoints))))
	}
	most := 128
	if endpoints > 100 {
		most = 2
	}
	return measure.Store(ctx, c, most, ops...)
}
