//go:build linux

package hostile

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/internal/scrape"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// Services that every site has, on 127.0.0.1 and wherever else the proxy listens.
const (
	bystanderPort = "7001" // to echoes
	silentPort    = "7002" // to holds
	floodPort     = "7003" // to floods
	mirrorPort    = "7004" // UDP, to mirrors
	canaryPort    = "7005" // opened and closed, to see that etcd is followed
	metricsURL    = "http://127.0.0.1:10249"
	healthzURL    = "http://127.0.0.1:10256"
)

func at(port string) string { return "127.0.0.1:" + port }

// A site is an etcd, the endpoints, a sink and a kube-proxy, in a network of their own.
type site struct {
	etcd    *etcdtest.Process
	etcdURL string // what kube-proxy is started with
	kv      *clientv3.Client
	proxy   *programtest.Program
	dir     string
	connlog string

	pairs     int       // how often a load is aimed at each of the two, in full
	newcomers bool      // the bystander also connects anew
	elsewhere bool      // records go where kube-proxy does not read them
	came      time.Time // when all of a load of records had been written; zero for other loads

	// The same load without the attack, also aimed at the proxy: an attack that has one is judged beside it. It ends as a load does, and
	// is nil where the sink does as much as a proxy would. See [site.beside].
	innocent func(t *testing.T) (over func())

	before          uint64
	highest         atomic.Uint64
	mostDescriptors atomic.Int64
}

// newSite makes a site. A host's address that is not loopback is 10.78.0.1.
func newSite(t *testing.T, flags ...string) *site {
	t.Helper()
	s := foundSite(t)
	s.start(t, "", flags...)
	s.becomesReady(t)
	return s
}

// foundSite makes a site whose kube-proxy has not been started. Its etcd keeps few log entries, in memory and on the disk: else
// thousands of large records would take gigabytes of both. Its database may grow to 8 GiB, for a starved machine compacts it late.
func foundSite(t *testing.T) *site {
	t.Helper()
	proxytest.MustRun(t, "ip", "addr", "add", "10.78.0.1/32", "dev", "lo")
	s := &site{etcd: etcdtest.StartProcess(t, "--snapshot-count=100", "--snapshot-catchup-entries=10", "--max-wals=1", "--max-snapshots=1", "--quota-backend-bytes=8589934592"), dir: t.TempDir(), pairs: 5}
	s.etcdURL = s.etcd.URL()
	s.kv = s.etcd.Client(t)
	s.connlog = filepath.Join(s.dir, "connections.log")
	cast(t, "endpoints")
	s.service(t, "bystander", bystanderPort, "TCP", echoes)
	s.service(t, "silent", silentPort, "TCP", holds)
	s.service(t, "flood", floodPort, "TCP", floods)
	s.service(t, "mirror", mirrorPort, "UDP", mirrors)
	return s
}

// start starts kube-proxy. A shell script, if there is one, runs in a mount namespace of its own and starts it by
// exec "$@"; the site's directory is $DIR.
func (s *site) start(t *testing.T, script string, flags ...string) {
	t.Helper()
	args := append([]string{"-engine=" + os.Getenv(engineEnv), "-etcd_servers=" + s.etcdURL, "-connection_log=" + s.connlog, "-drain_timeout=0", "-v=1"}, flags...)
	cmd := exec.Command(os.Getenv(binaryEnv), args...)
	if script != "" {
		cmd = exec.Command("sh", append([]string{"-ec", "mount --make-rprivate /; " + script, "sh", os.Getenv(binaryEnv)}, args...)...)
		cmd.Env = append(os.Environ(), "DIR="+s.dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	}
	s.proxy = programtest.RunTied(t, cmd)
}

// becomesReady waits until kube-proxy serves, and starts the sink.
func (s *site) becomesReady(t *testing.T) {
	t.Helper()
	eventually(t, func() bool { return s.page(t, healthzURL+"/readyz") == "ok\n" }, "kube-proxy is ready")
	// The sink has room for as many as the proxy, and sends the rest away as well.
	cast(t, "sink", int(s.sum(t, "kubeproxy_limit_max", "limit", "connections")))
	s.watchProcess(t)
}

// service writes a service and its endpoints.
func (s *site) service(t *testing.T, name, port, protocol string, endpoints ...string) {
	t.Helper()
	s.endpointsRecord(t, name, record(t, map[string]any{"kind": "Endpoints", "apiVersion": "v1beta1", "id": name, "endpoints": endpoints}))
	s.spec(t, name, record(t, map[string]any{"kind": "Service", "apiVersion": "v1beta1", "id": name, "port": whole(t, port), "protocol": protocol}))
}

func (s *site) endpointsRecord(t *testing.T, name, value string) {
	t.Helper()
	s.put(t, registry.EndpointsPrefix+name, value)
}

func (s *site) spec(t *testing.T, name, value string) {
	t.Helper()
	s.put(t, registry.SpecsPrefix+name, value)
}

// remove deletes a service and its endpoints.
func (s *site) remove(t *testing.T, name string, options ...clientv3.OpOption) {
	t.Helper()
	_, err := s.kv.Txn(t.Context()).Then(
		clientv3.OpDelete(s.place(registry.SpecsPrefix+name), options...),
		clientv3.OpDelete(s.place(registry.EndpointsPrefix+name), options...)).Commit()
	if err != nil {
		t.Fatal(err)
	}
}

func whole(t *testing.T, digits string) int {
	t.Helper()
	n, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func record(t *testing.T, fields map[string]any) string {
	t.Helper()
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (s *site) put(t *testing.T, key, value string) {
	t.Helper()
	if _, err := s.kv.Put(t.Context(), s.place(key), value); err != nil {
		t.Fatal(err)
	}
}

// place is the key that is written for this one.
func (s *site) place(key string) string {
	if s.elsewhere {
		return "/elsewhere" + key
	}
	return key
}

// page asks for a page of the operators', and gives "" if there is none.
func (s *site) page(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

// works checks that in the middle of it all operators are answered, and changes in etcd followed.
func (s *site) works(t *testing.T) {
	t.Helper()
	for _, url := range []string{healthzURL + "/livez", healthzURL + "/healthz", healthzURL + "/readyz"} {
		if got := s.page(t, url); !strings.HasPrefix(got, "ok") {
			t.Errorf("%s says %q", url, got)
		}
	}
	if s.page(t, metricsURL+"/metrics") == "" {
		t.Error("no answer from /metrics")
	}
	if !json.Valid([]byte(s.page(t, metricsURL+"/configz"))) {
		t.Error("no JSON from /configz")
	}
	open := func() float64 { return s.sum(t, "kubeproxy_listeners") }
	had := open()
	s.service(t, "canary", canaryPort, "TCP", echoes)
	eventually(t, func() bool { return open() == had+1 }, "a new service is open")
	s.remove(t, "canary")
	eventually(t, func() bool { return open() == had }, "a removed service is closed")
}

// arrived tells how many datagrams the sink has swallowed.
func (s *site) arrived(t *testing.T) int {
	t.Helper()
	conn, err := net.Dial("tcp4", sinkCounts)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	text, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// metrics reads the page of metrics; it has none when kube-proxy does not answer.
func (s *site) metrics(t *testing.T) scrape.Metrics {
	t.Helper()
	all, err := scrape.Parse(strings.NewReader(s.page(t, metricsURL+"/metrics")))
	if err != nil {
		t.Errorf("/metrics: %v", err)
	}
	return all
}

// sum is [scrape.Metrics.Sum] of the page as it is now.
func (s *site) sum(t *testing.T, metric string, labels ...string) float64 {
	t.Helper()
	return s.metrics(t).Sum(metric, labels...)
}

// ended gives how many clients were sent away or ended, by reason, of the services of a name; * is all of them.
func (s *site) ended(t *testing.T, metric, service string) map[string]float64 {
	t.Helper()
	return s.metrics(t).SumBy("reason", metric, "service", "default/"+service)
}

// told spells out counts.
func told(counts map[string]float64) string {
	var items []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		if counts[reason] > 0 {
			items = append(items, fmt.Sprintf("%s %.0f", reason, counts[reason]))
		}
	}
	if len(items) == 0 {
		return "nothing"
	}
	return strings.Join(items, ", ")
}

// watchProcess looks at the memory and the descriptors of kube-proxy until the test ends.
func (s *site) watchProcess(t *testing.T) {
	s.before = s.memory(t)
	s.highest.Store(s.before)
	over := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if now, err := rssAnon(s.proxy.Pid()); err == nil {
				s.highest.Store(max(s.highest.Load(), now))
			}
			if fds, err := os.Stat(fmt.Sprintf("/proc/%d/fd", s.proxy.Pid())); err == nil { // its size is their number, since Linux 6.2
				s.mostDescriptors.Store(max(s.mostDescriptors.Load(), fds.Size()))
			}
		}
	}()
	t.Cleanup(func() {
		close(over)
		<-watched
	})
}

func (s *site) memory(t *testing.T) uint64 {
	t.Helper()
	n, err := rssAnon(s.proxy.Pid())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// rssAnon is the memory that a process has for itself, in bytes: not what it maps of files, nor what the kernel
// buffers for it.
func rssAnon(pid int) (uint64, error) { return statusBytes(pid, "RssAnon:") }

// statusBytes is a size in /proc/PID/status.
func statusBytes(pid int, name string) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), name)
	line, _, _ := strings.Cut(rest, "kB")
	n, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
	return n << 10, err
}

// row begins the row of this site.
func (s *site) row(t *testing.T, scenario string, bound uint64) row {
	t.Helper()
	return row{Scenario: scenario, Before: s.before, Highest: s.highest.Load(), Rest: s.memory(t), Bound: bound}
}

// rounds is how often a load is aimed at the proxy.
func (s *site) rounds() int { return number(s.pairs, 1) }

// A side is what a bystander felt beside a load, and how long that took to come.
type side struct{ P99, Took time.Duration }

// beside aims a load at a sink and at the proxy, side by side in time, several times, and the innocent one, if there is one, at the
// proxy between the two. It tells what a bystander felt from the beginning of each until all of it has been there. What else is asked of
// the proxy meanwhile has to be the same in all. The load returns what ends it, and what is to be looked at while it stands can be done
// there: the bystander has left. The short form does not aim at the sink.
func (s *site) beside(t *testing.T, load func(t *testing.T, atProxy bool) (over func())) comparison {
	t.Helper()
	under := func(load func(t *testing.T) (over func())) side {
		b := stand(t, at(bystanderPort))
		if s.newcomers {
			b.connectAnew(at(bystanderPort))
		}
		began := time.Now()
		s.came = time.Time{}
		over := load(t)
		took := time.Since(began)
		if !s.came.IsZero() { // what follows waits for the proxy
			took = s.came.Sub(began)
		}
		p99 := b.leave(t)
		over()
		return side{p99, took}
	}
	const toSink, toProxy, innocent = 0, 1, 2
	turns := []func(t *testing.T) (over func()){
		toSink:  func(t *testing.T) func() { return load(t, false) },
		toProxy: func(t *testing.T) func() { return load(t, true) },
	}
	order := []int{toSink, toProxy}
	if s.innocent != nil {
		turns, order = append(turns, s.innocent), []int{toSink, innocent, toProxy}
	}
	if !*full {
		for _, which := range order[1 : len(order)-1] {
			under(turns[which])
		}
		return comparison{Proxy: under(turns[toProxy])}
	}
	felt := make([][]side, len(turns))
	for range s.pairs {
		for _, which := range order {
			felt[which] = append(felt[which], under(turns[which]))
		}
		slices.Reverse(order) // what one leaves behind must not always fall to the same other
	}
	c := comparison{Proxy: medianOf(felt[toProxy]), Sink: medianOf(felt[toSink]), Ratios: ratios(felt[toProxy], felt[toSink])}
	if s.innocent != nil {
		c.Innocent, c.InnocentRatios = medianOf(felt[innocent]), ratios(felt[toProxy], felt[innocent])
	}
	return c
}

// ratios are those of p99, pair by pair, in their order.
func ratios(these, those []side) (all []float64) {
	for i := range these {
		all = append(all, float64(these[i].P99)/float64(those[i].P99))
	}
	slices.Sort(all)
	return all
}

func medianOf(sides []side) side {
	return side{median(sides, func(s side) time.Duration { return s.P99 }), median(sides, func(s side) time.Duration { return s.Took })}
}

func median(sides []side, of func(side) time.Duration) time.Duration {
	var all []time.Duration
	for _, s := range sides {
		all = append(all, of(s))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
