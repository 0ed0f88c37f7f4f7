//go:build linux

package hostile

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// attacked makes a site for an attack: the bystander also connects anew, and each load is aimed three times.
func attacked(t *testing.T, flags ...string) *site {
	t.Helper()
	return newSite(t, flags...).forAttack()
}

func (s *site) forAttack() *site {
	s.pairs, s.newcomers = 3, true
	return s
}

// withstands aims an attack at the sink and at the proxy. Meanwhile the bystander makes round trips and probes ask for
// /livez and /readyz, which have to say ok each time. It returns the row, without what was refused.
func (s *site) withstands(t *testing.T, attack string, bound uint64, load func(t *testing.T, atProxy bool) (over func())) row {
	t.Helper()
	yardstick := cast(t, "yardstick")
	stop := s.probe(t)
	felt := s.beside(t, load)
	stop()
	s.works(t)
	r := s.row(t, attack, bound)
	r.Felt, r.Turn = felt, s.longestTurn(t)
	r.Yardstick, r.FirstThread = lastOf(t, yardstick)
	dismiss(t, yardstick)
	return r
}

// lastOf is what a yardstick said last.
func lastOf(t *testing.T, yardstick *programtest.Program) (longest, first time.Duration) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(yardstick.Stdout.String()), "\n")
	if n, err := fmt.Sscan(lines[len(lines)-1], &longest, &first); n != 2 {
		t.Fatalf("the yardstick says %q: %v", lines, err)
	}
	return longest, first
}

// probe asks for /livez and /readyz twenty times a second until it is stopped. Each answer has to be ok within a second.
func (s *site) probe(t *testing.T) (stop func()) {
	over := make(chan struct{})
	var probes sync.WaitGroup
	for _, page := range []string{"/livez", "/readyz"} {
		probes.Go(func() {
			client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
			asked, failed, last := 0, 0, ""
			for tick := time.NewTicker(50 * time.Millisecond); ; asked++ {
				select {
				case <-over:
					tick.Stop()
					if failed > 0 {
						t.Errorf("of %d probes of %s %d failed; the last one: %s", asked, page, failed, last)
					}
					return
				case <-tick.C:
				}
				response, err := client.Get(healthzURL + page)
				switch {
				case err != nil:
					failed, last = failed+1, err.Error()
				case response.StatusCode != http.StatusOK:
					failed, last = failed+1, response.Status
				}
				if err == nil {
					response.Body.Close()
				}
			}
		})
	}
	return func() {
		close(over)
		probes.Wait()
	}
}

// longestTurn is the longest turn that a loop has taken since the process started.
func (s *site) longestTurn(t *testing.T) time.Duration {
	t.Helper()
	return time.Duration(s.sum(t, "kubeproxy_loop_longest_turn_seconds") * float64(time.Second))
}

// call aims calls at the proxy's services, or as many at the sink, and waits until all have been made. An address with
// a range of ports, such as 127.0.0.1:7001-7009, stands for all of them; udp: before it is for datagrams.
func call(t *testing.T, atProxy bool, to string, n, rate int) (over func()) {
	t.Helper()
	if !atProxy {
		to = sinkAddr
	}
	callers := cast(t, "caller", to, n, rate)
	callers.Stdout.Wait(t, "done")
	return func() { dismiss(t, callers) }
}

// Who a service asks for its ports: clients of a headless service go past any proxy, so its record is read like the other, and asks for
// nothing.
const (
	claiming = ""
	headless = "None"
)

// manyPorts writes a service with n ports from the first on, and its endpoints for all of them. clusterIP is claiming or headless.
func (s *site) manyPorts(t *testing.T, name string, first, n int, endpoint, clusterIP string) {
	t.Helper()
	host, port, _ := strings.Cut(endpoint, ":")
	var ports, targets []map[string]any
	for i := range n {
		ports = append(ports, map[string]any{"name": fmt.Sprint("p", i), "port": first + i})
		targets = append(targets, map[string]any{"name": fmt.Sprint("p", i), "port": whole(t, port)})
	}
	s.endpointsRecord(t, name, record(t, map[string]any{"kind": "Endpoints", "apiVersion": "v1", "metadata": map[string]any{"name": name},
		"subsets": []any{map[string]any{"addresses": []any{map[string]any{"ip": host}}, "ports": targets}}}))
	s.spec(t, name, record(t, map[string]any{"kind": "Service", "apiVersion": "v1", "metadata": map[string]any{"name": name}, "spec": map[string]any{"ports": ports, "clusterIP": clusterIP}}))
}

// opsATransaction is as many as etcd takes.
const opsATransaction = 128

// manyServices writes n services with the same port, without endpoints. portalIP is claiming or headless.
func (s *site) manyServices(t *testing.T, prefix string, n int, port, portalIP string) {
	t.Helper()
	var ops []clientv3.Op
	for i := range n {
		name := fmt.Sprint(prefix, i)
		ops = append(ops, clientv3.OpPut(s.place(registry.SpecsPrefix+name),
			record(t, map[string]any{"kind": "Service", "apiVersion": "v1beta1", "id": name, "port": whole(t, port), "protocol": "TCP", "portalIP": portalIP})))
		if len(ops) == opsATransaction || i == n-1 {
			if _, err := s.kv.Txn(t.Context()).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
			ops = ops[:0]
		}
	}
}

// writes is a load of records: they are written where the proxy reads them, or, for the comparison, elsewhere in etcd.
func (s *site) writes(atProxy bool, write func()) (over func()) {
	s.elsewhere = !atProxy
	write()
	s.elsewhere, s.came = false, time.Now()
	return func() {}
}

// changeInForce creates a service, and returns how long it took until a client could use it. Then it is deleted.
func (s *site) changeInForce(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	s.service(t, "canary", canaryPort, "TCP", echoes)
	eventually(t, func() bool { return roundTrip(at(canaryPort), patience) == nil }, "a new service is open")
	took := time.Since(began)
	s.remove(t, "canary")
	eventually(t, func() bool { return roundTrip(at(canaryPort), patience) != nil }, "a removed service is closed")
	return took
}

// slow begins the report of a bound of time that was exceeded.
const slow = "slow: "

// tooSlow notes that the process of a test exceeded a bound of time. In full it is measured again: see ownNetwork.
func (r *row) tooSlow(t *testing.T, format string, args ...any) {
	t.Helper()
	r.Slow = true
	if !*full {
		t.Errorf(format, args...)
		return
	}
	proxytest.Report(slow+format, args...)
}

// ownNetwork is [proxytest.InOwnNetwork]. In the short form, tests run beside others: most of their time is waiting, and no p99 is judged.
// In full, a test that exceeded a bound of time runs again, and fails if two of three runs did: what the proxy does to itself it does each
// time, and what the machine does it seldom does twice. Everything else fails at once.
func ownNetwork(t *testing.T) bool {
	t.Helper()
	if !*full {
		t.Parallel()
		return proxytest.InOwnNetwork(t)
	}
	for runs, exceeded := 1, 0; ; runs++ {
		reports, inside := proxytest.ReportsFromOwnNetwork(t)
		if inside {
			return true
		}
		again := false
		for _, report := range reports {
			t.Logf("run %d: %s", runs, report)
			again = again || strings.HasPrefix(report, slow)
		}
		if again {
			exceeded++
		}
		switch {
		case t.Failed():
			return false
		case exceeded == 2:
			t.Errorf("%d of %d runs were too slow", exceeded, runs)
			return false
		case exceeded == 0 || runs == 3:
			return false
		}
	}
}

// inOwnNetwork is ownNetwork for a case of a table.
func inOwnNetwork(t *testing.T, name string, play func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		if ownNetwork(t) {
			play(t)
		}
	})
}
