package localhealth

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// batch has one service with a port for load balancers; 0: without.
func batch(port uint16, places registry.Places) registry.Batch {
	name := registry.Name{Namespace: "default", Name: "web"}
	addrs := registry.NewAddrs(registry.Addr{IP: netip.MustParseAddrPort("10.0.0.1:80")}, registry.Addr{IP: netip.MustParseAddrPort("10.0.0.2:80")})
	return registry.Batch{
		Services:  map[registry.Name]*registry.Service{name: {Name: name, Asked: &registry.Terms{Local: true, HealthCheckPort: port}}},
		Endpoints: map[registry.Name]*registry.Endpoints{name: {Name: name, ByPort: []registry.PortAddrs{{Addrs: addrs, Places: places}}}},
	}
}

func TestLoadBalancersLearnWhetherTheNodeHasAnEndpoint(t *testing.T) {
	var ready atomic.Bool
	ready.Store(true)
	s := New(proxytest.Loopback, ready.Load)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	port := proxytest.FreePort(t)
	url := fmt.Sprintf("http://127.0.0.1:%d/", port)
	ask := func() (status int, weight, body string) {
		got, err := http.Get(url)
		if err != nil {
			return 0, "", ""
		}
		defer got.Body.Close()
		text, _ := io.ReadAll(got.Body)
		return got.StatusCode, got.Header.Get("X-Load-Balancing-Endpoint-Weight"), strings.TrimSpace(string(text))
	}
	expect := func(what string, wantStatus int, wantWeight, wantBody string) {
		t.Helper()
		var status int
		var weight, body string
		if !proxytest.Becomes(func() bool {
			status, weight, body = ask()
			return status == wantStatus && weight == wantWeight && body == wantBody
		}) {
			t.Errorf("%s: got %d, weight %q, %s; want %d, %q, %s", what, status, weight, body, wantStatus, wantWeight, wantBody)
		}
	}
	const yes, no = `{"localEndpoints":1,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":true}`, `{"localEndpoints":0,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":true}`
	s.OnUpdate(batch(port, registry.Places([]byte{0, byte(registry.OnNode)})))
	expect("with an endpoint on the node", 200, "1", yes)
	ready.Store(false)
	expect("while the node is not ready", 503, "1", strings.Replace(yes, "true", "false", 1))
	ready.Store(true)
	s.OnUpdate(batch(port, ""))
	expect("without one", 503, "0", no)
	s.OnUpdate(batch(0, ""))
	expect("when the service asks for no port", 0, "", "")
	s.OnUpdate(batch(port, ""))
	expect("when it asks again", 503, "0", no)
	stop()
	proxytest.Receive(t, done, "Run to return")
	if status, _, _ := ask(); status != 0 {
		t.Errorf("after the end it answers %d", status)
	}
}
