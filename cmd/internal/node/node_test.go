package node

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"kubeproxy/cmd/internal/connlog"
	"kubeproxy/cmd/internal/metrics"
	"kubeproxy/cmd/internal/operators"
	"kubeproxy/config"
	"kubeproxy/config/etcdsource"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/proxy"
	"kubeproxy/proxy/engine"
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
	etcd := etcdtest.StartProcess(t)
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
			Sources: []config.Source{follow(t, etcd.URL())},
			Proxy: proxy.Config{
				Config: engine.Config{
					BindAddress:      netip.MustParseAddr("127.0.0.1"),
					DialTimeout:      proxytest.Patience, // a busy loopback loses packets, and a lost SYN takes a second
					DialTotalTimeout: proxytest.Patience,
				},
				DrainTimeout: proxytest.Patience,
			},
			Operators: operators.Config{Healthz: netip.MustParseAddrPort("127.0.0.1:0"), Metrics: netip.MustParseAddrPort("[::1]:0"), Profiling: true},
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
		done <- Run(ctx, Options{Sources: []config.Source{follow(t, "http://127.0.0.1:1")}})
	}()
	cancel()
	if err := proxytest.Receive(t, done, "the end of Run"); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// follow makes the source of an etcd.
func follow(t testing.TB, url string) config.Source {
	t.Helper()
	source, err := etcdsource.New(etcdsource.Config{Endpoints: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func TestRunRefusesToRunWithoutASource(t *testing.T) {
	if err := Run(t.Context(), Options{}); err == nil {
		t.Error("Run without a source ended without an error")
	}
}

// TestOperatorsMayAskWhileEverythingChanges: services come, change and go, clients connect, and all pages
// are asked for without a pause. It is for the race detector; and the names are of the kind that breaks
// what is put together carelessly.
func TestOperatorsMayAskWhileEverythingChanges(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	kv := etcd.Client(t)
	endpoint := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("a"))
	ports := []uint16{proxytest.FreePort(t), proxytest.FreePort(t)}
	operatorsPort := proxytest.FreePort(t)
	log, err := connlog.Open(filepath.Join(t.TempDir(), "log"), "node-1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error)
	go func() {
		done <- Run(ctx, Options{
			Sources:          []config.Source{follow(t, etcd.URL())},
			Proxy:            proxy.Config{Config: engine.Config{BindAddress: netip.MustParseAddr("127.0.0.1"), DialTimeout: proxytest.Patience, DialTotalTimeout: proxytest.Patience}},
			Operators:        operators.Config{Metrics: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), operatorsPort)},
			ConnectionLog:    log,
			MetricsEndpoints: metrics.Choice{All: true},
			Ready:            func() { close(ready) },
		})
	}()
	proxytest.Receive(t, ready, "Ready")

	changing, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer stop()
	for _, pages := range [][]string{{"metrics"}, {"configz"}, {"readyz"}, {"", "?show=problems&sort=new", "status/endings"}} {
		others.Go(func() {
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: proxytest.Patience}
			for i := 0; changing.Err() == nil; i++ {
				page := pages[i%len(pages)]
				answer, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/%s", operatorsPort, page))
				if err != nil {
					t.Errorf("%s: %v", page, err)
					return
				}
				body, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || answer.StatusCode != http.StatusOK || page == "configz" && !json.Valid(body) {
					t.Errorf("%s: %d, %v: %s", page, answer.StatusCode, err, body)
					return
				}
			}
		})
	}
	for _, port := range ports {
		others.Go(func() {
			for changing.Err() == nil {
				_, _ = proxytest.AskTCP(proxytest.On(port)) // it may be closed just now
			}
		})
	}
	for i := range 60 {
		name := []string{"plain", "line\nbreak", "<b>&\"\\", "\x1b[31m\xff"}[i%4]
		spec := fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"x","port":%d}`, ports[i%2])
		list := fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"x","endpoints":[%q]}`, endpoint.Addr)
		for key, value := range map[string]string{registry.SpecsPrefix + name: spec, registry.EndpointsPrefix + name: list} {
			if i%3 == 2 {
				_, err = kv.Delete(t.Context(), key)
			} else {
				_, err = kv.Put(t.Context(), key, value)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	stop()
	others.Wait()
	cancel()
	if err := proxytest.Receive(t, done, "the end of Run"); err != nil {
		t.Errorf("Run: %v", err)
	}
	if log.Written() == 0 || log.Dropped() != 0 {
		t.Errorf("%d lines were written and %d lost", log.Written(), log.Dropped())
	}
}
