package main

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/proxy/proxytest"
)

// Clients of an outage: how many a second, and how many between one change of etcd's fortunes and
// the next.
const (
	outageRate  = 600
	outageStage = 1000
)

// TestKillingEtcdUnderTrafficFailsNoConnection kills and restarts etcd while clients connect at a
// steady rate. Each of them is answered, by an endpoint of the service that it asked for.
func TestKillingEtcdUnderTrafficFailsNoConnection(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartProcess(t)
	client := etcd.Client(t)
	var ports []uint16
	for i := range 4 {
		service := fmt.Sprint("service", i)
		port := proxytest.FreePort(t)
		ports = append(ports, port)
		one := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify(service))
		other := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify(service))
		for key, value := range map[string]string{
			"specs/":     fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":%q,"port":%d,"protocol":"TCP"}`, service, port),
			"endpoints/": fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":%q,"endpoints":[%q,%q]}`, service, one.Addr, other.Addr),
		} {
			if _, err := client.Put(t.Context(), "/registry/services/"+key+service, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	program := start(t, nil, "-etcd_servers="+etcd.URL(), "-bind_address=127.0.0.1", "-config_sync_period=1s")
	for i, port := range ports {
		proxytest.Eventually(t, func() bool {
			answer, err := proxytest.AskTCP(proxytest.On(port))
			return err == nil && answer == fmt.Sprint("service", i)
		}, "service%d is served", i)
	}

	traffic := newTraffic(ports)
	for range 2 {
		traffic.passes(t, outageStage)
		etcd.Kill()
		traffic.passes(t, outageStage)
		etcd.Start(t)
		traffic.passes(t, outageStage)
	}
	failures, rate := traffic.end()
	t.Logf("%d connections, %.0f a second", traffic.done.Load(), rate)
	for _, f := range failures[:min(len(failures), 10)] {
		t.Error(f)
	}
	if n := len(failures); n > 0 {
		t.Errorf("%d connections failed; want none", n)
	}

	// D46: go-etcd wrote about five lines for each request. Two outages take a handful, all of them ours.
	program.Signal(t, syscall.SIGTERM)
	if code := program.Exit(t).ExitCode(); code != 0 {
		t.Errorf("exit status %d after SIGTERM; want 0", code)
	}
	lines := strings.Split(strings.TrimSpace(program.Stderr.String()), "\n")
	if len(lines) > 20 {
		t.Errorf("%d lines were logged; want at most 20", len(lines))
	}
	for _, line := range lines {
		if !glogLine.MatchString(line) {
			t.Errorf("not a line of our log: %q", line)
		}
	}
}

var glogLine = regexp.MustCompile(`^[IWE]\d{4} `)

// A traffic is a steady stream of clients of services whose endpoints say which service they are.
type traffic struct {
	begun   time.Time
	stop    chan struct{}
	done    atomic.Int64
	clients sync.WaitGroup

	mu       sync.Mutex // guards the field below
	failures []string
}

func newTraffic(ports []uint16) *traffic {
	tr := &traffic{begun: time.Now(), stop: make(chan struct{})}
	tickets := make(chan int) // a client takes one, and connects
	tr.clients.Go(func() {
		defer close(tickets)
		pace := time.NewTicker(time.Second / outageRate)
		defer pace.Stop()
		for n := 0; ; n++ {
			select {
			case <-pace.C:
				tickets <- n
			case <-tr.stop:
				return
			}
		}
	})
	for range 16 {
		tr.clients.Go(func() {
			for n := range tickets {
				i := n % len(ports)
				want := fmt.Sprint("service", i)
				if got, err := proxytest.AskTCP(proxytest.On(ports[i])); got != want || err != nil {
					tr.mu.Lock()
					tr.failures = append(tr.failures, fmt.Sprintf("client %d: asked for %s and got %q, %v", n, want, got, err))
					tr.mu.Unlock()
				}
				tr.done.Add(1)
			}
		})
	}
	return tr
}

// passes waits until another n clients are done.
func (tr *traffic) passes(t *testing.T, n int64) {
	t.Helper()
	until := tr.done.Load() + n
	proxytest.Eventually(t, func() bool { return tr.done.Load() >= until }, "%d clients are done", until)
}

// end waits for the last client, and gives what went wrong and how many clients there were a second.
func (tr *traffic) end() (failures []string, rate float64) {
	close(tr.stop)
	tr.clients.Wait()
	return tr.failures, float64(tr.done.Load()) / time.Since(tr.begun).Seconds()
}
