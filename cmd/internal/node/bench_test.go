package node

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/proxy"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// BenchmarkPutToEffect measures from the call that writes other endpoints to the first client that
// one of them answers, with a real etcd beside this process: the write, the whole control path, and the
// connection of that client.
func BenchmarkPutToEffect(b *testing.B) {
	etcd := etcdtest.StartProcess(b)
	kv := etcd.Client(b)
	port := proxytest.FreePort(b)
	endpoints := [2]registry.Addr{
		proxytest.ServeTCP(b, "127.0.0.1:0", proxytest.Identify("0")).Addr,
		proxytest.ServeTCP(b, "127.0.0.1:0", proxytest.Identify("1")).Addr,
	}
	put := func(key, value string) {
		if _, err := kv.Put(b.Context(), key, value); err != nil {
			b.Fatal(err)
		}
	}
	put(registry.SpecsPrefix+"one", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"one","port":%d}`, port))
	ctx, cancel := context.WithCancel(b.Context())
	ready, done := make(chan struct{}), make(chan error)
	go func() {
		done <- Run(ctx, Options{
			Sources: []config.Source{follow(b, etcd.URL())},
			Proxy:   proxy.Config{Config: engine.Config{BindAddress: netip.MustParseAddr("127.0.0.1")}},
			Ready:   func() { close(ready) },
		})
	}()
	<-ready
	n := 0
	for b.Loop() {
		n++
		want := fmt.Sprint(n % 2)
		put(registry.EndpointsPrefix+"one", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"one","endpoints":[%q]}`, endpoints[n%2]))
		for {
			if answer, err := proxytest.AskTCP(proxytest.On(port)); err == nil && answer == want {
				break
			}
		}
	}
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
