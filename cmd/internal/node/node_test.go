package node

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"kubeproxy/config/etcdsource"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/proxy"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

func TestMain(m *testing.M) {
	if err := flag.Set("logtostderr", "true"); err != nil { // glog's: a log file would look like a leak
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// TestReadyMeansServing: when Ready is called, a service that was in etcd can be reached, even one
// with so many endpoints that it takes the balancer a while to learn them: it comes before the proxier.
// When Run has returned, nothing of it is left.
func TestReadyMeansServing(t *testing.T) {
	etcd := etcdtest.StartServer(t)
	kv := etcd.Client(t)
	port := proxytest.FreePort(t)
	endpoints := []string{proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("a")).Addr.String()}
	for i := range 60_000 {
		endpoints = append(endpoints, fmt.Sprintf("10.1.%d.%d:80", i/256, i%256)) // whose turn does not come
	}
	list, err := json.Marshal(endpoints)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		registry.SpecsPrefix + "one":     fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"one","port":%d}`, port),
		registry.EndpointsPrefix + "one": fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"one","endpoints":%s}`, list),
	} {
		if _, err := kv.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}

	proxytest.NothingLeaks(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, done := make(chan string, 2), make(chan error)
	go func() {
		done <- Run(ctx, Options{
			Etcd: etcdsource.Config{Endpoints: []string{etcd.URL()}},
			Proxy: proxy.Config{
				BindAddress:      netip.MustParseAddr("127.0.0.1"),
				DialTimeout:      proxytest.Patience, // a busy loopback loses packets, and a lost SYN takes a second
				DialTotalTimeout: proxytest.Patience,
				DrainTimeout:     proxytest.Patience,
			},
			Ready: func() {
				answer, err := proxytest.AskTCP(proxytest.On(port))
				ready <- fmt.Sprint(answer, err)
			},
		})
	}()
	if got := proxytest.Receive(t, ready, "Ready"); got != "a<nil>" {
		t.Errorf("asked while Ready was called, got %s; want an answer by a", got)
	}
	cancel()
	if err := proxytest.Receive(t, done, "the end of Run"); err != nil {
		t.Errorf("Run: %v", err)
	}
	if len(ready) > 0 {
		t.Error("Ready was called twice")
	}
	if proxytest.Listens(proxytest.On(port)) {
		t.Error("the port is open after Run")
	}
}

// TestRunWithoutEtcdWaits: an etcd that cannot be reached is no reason to end, and ending needs none.
func TestRunWithoutEtcdWaits(t *testing.T) {
	proxytest.NothingLeaks(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- Run(ctx, Options{Etcd: etcdsource.Config{Endpoints: []string{"http://127.0.0.1:1"}}})
	}()
	cancel()
	if err := proxytest.Receive(t, done, "the end of Run"); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRunRefusesAnEtcdThatCannotBe(t *testing.T) {
	if err := Run(t.Context(), Options{}); err == nil {
		t.Error("Run without an etcd ended without an error")
	}
}
