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
	"time"

	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

var web = registry.Name{Namespace: "default", Name: "web"}

// asking is the service web, which asks for a port for load balancers; 0: for none.
func asking(port uint16) *registry.Service {
	return &registry.Service{Name: web, Asked: &registry.Terms{Local: true, HealthCheckPort: port}, Ports: []registry.Port{{Protocol: registry.TCP, Number: 80}}}
}

func (s *Server) learn(service *registry.Service) {
	s.OnUpdate(registry.Batch{Services: map[registry.Name]*registry.Service{web: service}})
}

// ask asks as a load balancer does. Without an answer the status is 0.
func ask(port uint16) (status int, weight, body string) {
	got, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		return 0, "", ""
	}
	defer got.Body.Close()
	text, _ := io.ReadAll(got.Body)
	return got.StatusCode, got.Header.Get("X-Load-Balancing-Endpoint-Weight"), strings.TrimSpace(string(text))
}

func TestLoadBalancersLearnWhetherTheNodeHasAnEndpoint(t *testing.T) {
	var ready atomic.Bool
	ready.Store(true)
	var local atomic.Int32
	s := New(proxytest.Loopback, ready.Load, func(name registry.Name) int {
		if name != web {
			return 0
		}
		return int(local.Load())
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	port := proxytest.FreePort(t)
	expect := func(what string, wantStatus int, wantWeight, wantBody string) {
		t.Helper()
		var status int
		var weight, body string
		if !proxytest.Becomes(func() bool {
			status, weight, body = ask(port)
			return status == wantStatus && weight == wantWeight && body == wantBody
		}) {
			t.Errorf("%s: got %d, weight %q, %s; want %d, %q, %s", what, status, weight, body, wantStatus, wantWeight, wantBody)
		}
	}
	const yes, no = `{"localEndpoints":1,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":true}`, `{"localEndpoints":0,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":true}`
	local.Store(1)
	s.learn(asking(port))
	expect("with an endpoint on the node", 200, "1", yes)
	ready.Store(false)
	expect("while the node is not ready", 503, "1", strings.Replace(yes, "true", "false", 1))
	ready.Store(true)
	local.Store(0)
	expect("without one", 503, "0", no)
	s.learn(asking(0))
	expect("when the service asks for no port", 0, "", "")
	s.learn(asking(port))
	expect("when it asks again", 503, "0", no)
	stop()
	proxytest.Receive(t, done, "Run to return")
	if status, _, _ := ask(port); status != 0 {
		t.Errorf("after the end it answers %d", status)
	}
}

// TestLoadBalancersLearnThatTheOnlyEndpointOnTheNodeIsDrained, and whatever else keeps all clients of the node from it.
func TestLoadBalancersLearnThatTheOnlyEndpointOnTheNodeIsDrained(t *testing.T) {
	service := asking(proxytest.FreePort(t))
	port := service.Asked.HealthCheckPort
	service.Asked.Failure.Refuse = true
	lb := balance.NewLoadBalancerRR(false)
	lb.Node.Name, lb.Allowed = "n1", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
	lb.Checker = checks.New(checks.Settings{}, nil, nil) // which does not run
	r := lb.Hold(registry.PortKey{Name: web})
	behind := func(weights registry.Weights, onNode string) {
		addrs := registry.NewAddrs(registry.Addr{IP: netip.MustParseAddrPort(onNode)}, registry.Addr{IP: netip.MustParseAddrPort("10.0.0.2:80")})
		lb.SetEndpoints(map[registry.Name]*registry.Endpoints{web: {Name: web, Weights: weights,
			ByPort: []registry.PortAddrs{{Addrs: addrs, Places: registry.Places([]byte{byte(registry.OnNode), 0})}}}})
		lb.LetGo()
	}
	behind("", "10.0.0.1:80")
	lb.SetServices(map[registry.Name]*registry.Service{web: service}, nil)
	s := New(proxytest.Loopback, func() bool { return true }, func(registry.Name) int { return lb.OnNode(service) })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	defer func() { stop(); <-done }()
	s.learn(service)
	want := func(what string, want int) {
		t.Helper()
		status := 0
		if !proxytest.Becomes(func() bool { status, _, _ = ask(port); return status == want }) {
			t.Errorf("%s: got %d; want %d", what, status, want)
		}
	}
	want("at first", 200)
	drain := balance.Override{Service: web, Word: balance.Drain, Began: time.Now(), Until: time.Now().Add(time.Hour)}
	match, err := registry.ParseAddrMatch("10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lb.Override(match, drain, true); err != nil {
		t.Fatal(err)
	}
	want("drained", 503)
	lb.Enable(web, match)
	want("enabled", 200)
	behind("10.0.0.1=0", "10.0.0.1:80")
	want("with weight 0", 503)
	behind("", "10.0.1.1:80")
	want("at an address that is not allowed", 503)
	behind("", "10.0.0.1:80")
	want("as at first", 200)
	for _, e := range r.Endpoints() {
		e.Checked(registry.TCP, false)
	}
	want("while all checks fail, and clients are refused then", 503)
}
