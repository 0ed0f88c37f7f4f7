//go:build linux

package scale

import (
	"context"
	"fmt"
	"os"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
	"kubeproxy/registry/decode"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// A naive handler rebuilds everything whenever something changes, as v0.4 did: the change is decoded, the
// complete lists of services and of endpoints are made anew and handed over, and who is given them
// compares and rebuilds every rotation and every port. It opens no sockets.
type naive struct {
	records map[string]decode.Record // by key

	services  map[registry.Name]*registry.Service
	rotations map[registry.PortKey][]registry.Addr
	rebuilt   int
}

// runNaive watches the registry as kube-proxy does, naively, until standard input ends.
func runNaive(url string) (err error) {
	defer try.Catch(&err)
	c := try.Get(measure.NewEtcdClient(url))
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // it returns when standard input ends
		cancel()
	}()
	list := try.Get(c.Get(ctx, registry.Prefix, clientv3.WithPrefix()))
	n := &naive{records: make(map[string]decode.Record)}
	for _, kv := range list.Kvs {
		try.Do(n.put(string(kv.Key), kv.Value))
	}
	n.rebuild()
	fmt.Println("ready")
	for r := range c.Watch(ctx, registry.Prefix, clientv3.WithPrefix(), clientv3.WithRev(list.Header.Revision+1)) {
		for _, ev := range r.Events {
			try.Do(n.put(string(ev.Kv.Key), ev.Kv.Value))
			n.rebuild()
			n.rebuilt++
		}
		fmt.Println("rebuilt", n.rebuilt)
	}
	return nil
}

func (n *naive) put(key string, value []byte) error {
	record, _, err := decode.Decode(key, value)
	n.records[key] = record
	return err
}

func (n *naive) rebuild() {
	var services []*registry.Service
	var endpoints []*registry.Endpoints
	for _, r := range n.records {
		switch {
		case r.Service != nil:
			services = append(services, r.Service)
		case r.Endpoints != nil:
			endpoints = append(endpoints, r.Endpoints)
		}
	}
	rotations := make(map[registry.PortKey][]registry.Addr)
	for _, e := range endpoints {
		for _, p := range e.ByPort {
			key := registry.PortKey{Name: e.Name, Port: p.Port}
			addrs, rotation := slices.Collect(p.Addrs.All()), n.rotations[key]
			if !slices.Equal(rotation, addrs) {
				rotation = addrs
			}
			rotations[key] = rotation
		}
	}
	byName := make(map[registry.Name]*registry.Service)
	for _, s := range services {
		if had := n.services[s.Name]; had.Equal(s) {
			s = had
		}
		byName[s.Name] = s
	}
	n.services, n.rotations = byName, rotations
}
