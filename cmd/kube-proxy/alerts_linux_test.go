package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// prometheusEnv names a prometheus program. scripts/monitoring-check fetches one and sets it.
const prometheusEnv = "KUBE_PROXY_PROMETHEUS"

const monitoring = "../../docs/monitoring/"

// TestEachAlertFiresUnderItsFault, for the node with the fault and on real scrapes, and none for a node without one. Each metric that the
// rules and the dashboards name is there by then.
//
// A real Prometheus evaluates the rules of docs/monitoring each second. They are shortened: an alert fires when its expression has been
// true for 3 s, and a state is old after 15 s in place of two minutes. promtool tests the durations.
func TestEachAlertFiresUnderItsFault(t *testing.T) {
	program := os.Getenv(prometheusEnv)
	if program == "" {
		t.Skip("make monitoring-check runs it, with a Prometheus")
	}
	s := newSite(t)
	quiet, quietURL := operatorsURL(t)
	s.serve(t, "-metrics_bind_address="+quiet, "-healthz_bind_address=")
	awaitPage(t, quietURL+"/readyz", http.StatusOK, "ok")
	repeat(t, func() { proxytest.Listens(proxytest.On(s.port)) })

	m := &monitored{fires: make(map[string]string)}
	m.node(t, quiet)
	m.down(t)
	m.away(t)
	m.saved(t)
	m.broken(t)
	m.unprobed(t)
	m.crowded(t)
	m.idle(t)
	m.lapsed(t)
	m.lost(t)
	m.unelected(t)
	m.unrouted(t)
	failTakeover := m.takeover(t)
	hold := m.stuck(t, s)
	server := m.prometheus(t, program)
	m.scraped(t, server) // so that counters are seen to grow
	failTakeover()
	hold()

	firing := make(map[string]bool)
	proxytest.Eventually(t, func() bool {
		for _, a := range m.ask(t, server, `ALERTS{alertstate="firing"}`) {
			firing[a["alertname"]+" "+a["instance"]] = true
		}
		for alert, instance := range m.fires {
			if !firing[alert+" "+instance] {
				return false
			}
		}
		return true
	}, "each alert fires for the node with its fault: %v", m.fires)
	for _, alert := range alerts(t) {
		if m.fires[alert] == "" {
			t.Errorf("no fault is made for %s", alert)
		}
	}
	for _, a := range m.ask(t, server, fmt.Sprintf(`count_over_time(ALERTS{alertstate="firing",instance=%q}[1h])`, quiet)) {
		t.Errorf("%s fired for the node without a fault", a["alertname"])
	}
	for _, name := range metricsNamed(t) {
		if len(m.ask(t, server, fmt.Sprintf("count_over_time(%s[1h])", name))) == 0 {
			t.Errorf("%s is in no scrape of any node", name)
		}
	}
}

// monitored are the nodes that a Prometheus reads.
type monitored struct {
	targets []string
	fires   map[string]string // the node that an alert has to fire for
}

// node adds a node, with the alerts that have to fire for it.
func (m *monitored) node(t *testing.T, address string, alerts ...string) {
	t.Helper()
	m.targets = append(m.targets, address)
	for _, a := range alerts {
		m.fires[a] = address
	}
}

// down is an address where there is no node.
func (m *monitored) down(t *testing.T) {
	t.Helper()
	address, _ := operatorsURL(t)
	m.node(t, address, "KubeProxyDown")
}

// run starts a node that reads a directory.
func (m *monitored) run(t *testing.T, dir string, alerts []string, args ...string) (p *programtest.Program, url string) {
	t.Helper()
	address, url := operatorsURL(t)
	m.node(t, address, alerts...)
	return start(t, nil, append([]string{"-registry_dir=" + dir, "-bind_address=127.0.0.1", "-healthz_bind_address=", "-metrics_bind_address=" + address}, args...)...), url
}

// away is a node that has never read its directory.
func (m *monitored) away(t *testing.T) {
	t.Helper()
	m.run(t, filepath.Join(t.TempDir(), "missing"), []string{"KubeProxyNotReady", "KubeProxySourceAway", "KubeProxyStateOld"})
}

// saved is a node that has started without its directory.
func (m *monitored) saved(t *testing.T) {
	t.Helper()
	dir, state := t.TempDir(), "-state_dir="+filepath.Join(t.TempDir(), "state")
	writeRecord(t, dir, registry.SpecsPrefix+"web", serviceRecord("web", proxytest.FreePort(t), "TCP"))
	first, _ := operatorsURL(t)
	p := start(t, nil, "-registry_dir="+dir, "-bind_address=127.0.0.1", "-healthz_bind_address=", "-metrics_bind_address="+first, "-drain_timeout=0", state)
	awaitPage(t, "http://"+first+"/readyz", http.StatusOK, "ok")
	p.Signal(t, syscall.SIGTERM)
	p.Exit(t)
	if err := os.RemoveAll(filepath.Join(dir, "registry")); err != nil {
		t.Fatal(err)
	}
	m.run(t, dir, []string{"KubeProxySavedStateInUse"}, state)
}

// broken is a node with a fault in its records, its endpoints, its limits and its log. Clients come all the time.
func (m *monitored) broken(t *testing.T) {
	t.Helper()
	dir, taken := t.TempDir(), proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("another program")).Addr
	ports := make(map[string]uint16)
	add := func(name, protocol string, port uint16, endpoint string) {
		ports[name] = port
		writeRecord(t, dir, registry.SpecsPrefix+name, serviceRecord(name, port, protocol))
		if endpoint != "" {
			writeRecord(t, dir, registry.EndpointsPrefix+name, endpointsRecord(name, endpoint))
		}
	}
	chat := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a")).Addr.String()
	before, after := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("a")), proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("a"))
	add("busy", "TCP", proxytest.FreePort(t), chat)
	add("conflict", "TCP", ports["busy"], chat)
	add("taken", "TCP", taken.IP.Port(), chat)
	add("forbidden", "TCP", 9, chat)
	add("silent", "TCP", proxytest.FreePort(t), fmt.Sprintf("127.0.0.1:%d", proxytest.FreePort(t)))
	add("empty", "TCP", proxytest.FreePort(t), "")
	add("drained", "TCP", proxytest.FreePort(t), "")
	writeRecord(t, dir, registry.EndpointsPrefix+"drained", weightlessRecord("drained", chat))
	add("checked", "TCP", proxytest.FreePort(t), chat)
	writeRecord(t, dir, registry.SpecsPrefix+"checked", checkedRecord("checked", ports["checked"], "haproxy.org/check-http", "/", "haproxy.org/check-interval", "500ms"))
	add("dns", "UDP", proxytest.FreePort(t), before.Addr.String())
	add("dumb", "UDP", proxytest.FreePort(t), "")
	writeRecord(t, dir, registry.SpecsPrefix+"refused", "this is no record")
	_, url := m.run(t, dir, []string{"KubeProxyRecordsRefused", "KubeProxyPortConflict", "KubeProxyPortNotOpen", "KubeProxyPortRefused", "KubeProxyServiceDown",
		"KubeProxyServiceWithoutEndpoints", "KubeProxyServiceRefusesClients", "KubeProxyChecksIgnored", "KubeProxyClientsWithoutEndpoint", "KubeProxyClientsOverLimit", "KubeProxyDatagramsDropped",
		"KubeProxyLimitNear", "KubeProxyLogLinesLost"},
		"-max_connections_per_service=1", "-max_udp_sessions=1", "-allowed_ports=1024-65535", "-connection_log=/dev/full", "-metrics_endpoints")
	awaitPage(t, url+"/readyz", http.StatusOK, "ok")
	proxytest.TalkTo(t, proxytest.On(ports["busy"])).MustSay(t, "hello") // and stays
	stranger := proxytest.DialUDP(t, proxytest.On(ports["dumb"]))
	proxytest.DialUDP(t, proxytest.On(ports["dns"])).AskOften(t) // its session is evicted by the next one
	known := proxytest.DialUDP(t, proxytest.On(ports["dns"]))
	known.AskOften(t)
	known.AskOften(t) // its session is confirmed, and is not evicted
	writeRecord(t, dir, registry.EndpointsPrefix+"dns", endpointsRecord("dns", after.Addr.String()))
	repeat(t, func() {
		for _, name := range []string{"busy", "silent", "empty"} {
			proxytest.Listens(proxytest.On(ports[name]))
		}
		known.Try(time.Second)
		stranger.Write([]byte("is anybody there?"))
	})
}

// unprobed is a node that cannot tell load balancers about a service: another program has the port.
func (m *monitored) unprobed(t *testing.T) {
	t.Helper()
	s := &stage{dir: t.TempDir()}
	s.local(t, "web", proxytest.FreePort(t), s.chat(t).IP.Port())
	m.run(t, s.dir, []string{"KubeProxyHealthPortNotOpen"}, s.args...)
}

// crowded is a node with more endpoints that hang than it can check in time.
func (m *monitored) crowded(t *testing.T) {
	t.Helper()
	dir, hung := t.TempDir(), proxytest.ServeTCP(t, "0.0.0.0:0", proxytest.Hold).Addr.IP.Port()
	var addrs []string
	for i := range 2000 {
		addrs = append(addrs, fmt.Sprintf("127.1.%d.%d:%d", i>>8, i&255, hung))
	}
	service := fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"hung","port":%d,`+
		`"annotations":{"haproxy.org/check-http":"/","haproxy.org/check-interval":"2s"}}`, proxytest.FreePort(t))
	writeRecord(t, dir, registry.SpecsPrefix+"hung", service)
	writeRecord(t, dir, registry.EndpointsPrefix+"hung", endpointsRecord("hung", addrs...))
	m.run(t, dir, []string{"KubeProxyChecksOverdue"})
}

// idle is a node whose kernel carries nothing, because its listeners are on the loopback.
func (m *monitored) idle(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	writeRecord(t, dir, registry.SpecsPrefix+"web", serviceRecord("web", proxytest.FreePort(t), "TCP"))
	m.run(t, dir, []string{"KubeProxyKernelUnused"}, "-kernel=auto")
}

// lapsed is a node with a service whose instance has lost its lease.
func (m *monitored) lapsed(t *testing.T) {
	t.Helper()
	etcd, lapse := lapsing(t, proxytest.FreePort(t))
	address, url := operatorsURL(t)
	m.node(t, address, "KubeProxyInstancesKept")
	start(t, nil, "-etcd_servers="+etcd, "-bind_address=127.0.0.1", "-healthz_bind_address=", "-metrics_bind_address="+address)
	awaitPage(t, url+"/readyz", http.StatusOK, "ok")
	lapse()
}

// lost are two nodes, of which one has lost all its services and one half of them.
func (m *monitored) lost(t *testing.T) {
	t.Helper()
	for alert, part := range map[string]string{"KubeProxyServicesLost": registry.SpecsPrefix, "KubeProxyMostServicesLost": registry.SpecsPrefix + "shop"} {
		dir := fourServices(t, proxytest.FreePort(t))
		_, url := m.run(t, dir, []string{alert})
		awaitPage(t, url+"/readyz", http.StatusOK, "ok")
		moveAway(t, dir, part)
	}
}

// unelected is a node with a service that follows the leader of a cluster that has none, and is paused, and with one of the replicas of another.
func (m *monitored) unelected(t *testing.T) {
	t.Helper()
	s := newSite(t)
	s.put(t, registry.SpecsPrefix+"pg", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"pg","port":%d,"annotations":{"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"primary"}}`, proxytest.FreePort(t)))
	s.put(t, "/service/pg/config", `{"ttl":30,"pause":true}`)
	at := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("m1")).Addr
	s.put(t, registry.SpecsPrefix+"read", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"read","port":%d,"annotations":{"kube-proxy/patroni":"well","kube-proxy/patroni-role":"replica"}}`, proxytest.FreePort(t)))
	s.put(t, "/service/well/config", `{"ttl":30}`)
	s.put(t, "/service/well/members/m1", fmt.Sprintf(`{"conn_url":"postgres://%s/postgres","state":"running","role":"replica"}`, at))
	address, url := operatorsURL(t)
	m.node(t, address, "KubeProxyNobodyElected", "KubeProxyKeyNotHeld", "KubeProxyClusterPaused")
	start(t, nil, "-etcd_servers="+s.etcd.URL(), "-bind_address=127.0.0.1", "-healthz_bind_address=", "-metrics_bind_address="+address, "-patroni=/service/")
	awaitPage(t, url+"/readyz", http.StatusOK, "ok")
}

// unrouted is a node that may make no routes: in a user namespace of its own it has no capability of this network.
func (m *monitored) unrouted(t *testing.T) {
	t.Helper()
	address, url := operatorsURL(t)
	m.node(t, address, "KubeProxyRoutesMissing")
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeRecord(t, dir, registry.SpecsPrefix+"web", serviceRecord("web", proxytest.FreePort(t), "TCP"))
	programtest.Run(t, &exec.Cmd{
		Path:        path,
		Args:        []string{"kube-proxy", "-registry_dir=" + dir, "-bind_address=127.0.0.1", "-healthz_bind_address=", "-metrics_bind_address=" + address, "-service_cidr=10.96.0.0/12"},
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER},
	})
	awaitPage(t, url+"/readyz", http.StatusOK, "ok")
}

// takeover is a node, and a successor that declines once fail is called.
func (m *monitored) takeover(t *testing.T) (fail func()) {
	t.Helper()
	path, dir := takeoverPath(t), t.TempDir()
	writeRecord(t, dir, registry.SpecsPrefix+"web", serviceRecord("web", proxytest.FreePort(t), "TCP"))
	m.run(t, dir, []string{"KubeProxyTakeoverFailed"}, "-takeover="+path)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	return func() {
		r := dialRaw(t, path)
		r.send(hello)
		r.receive()
		r.send("\x03no")
		r.close()
	}
}

// stuck is a node with an event loop that stands still once hold is called. See TestALoopThatStandsStillMakesTheNodeNotAlive.
func (m *monitored) stuck(t *testing.T, s *site) (hold func()) {
	t.Helper()
	address, url := operatorsURL(t)
	m.node(t, address, "KubeProxyStuck")
	p := start(t, []string{"GOGC=off", "GOMAXPROCS=4", "GODEBUG=gctrace=1"}, "-etcd_servers", s.etcd.URL(), "-bind_address=127.0.0.2", "-engine=epoll",
		"-healthz_bind_address=", "-metrics_bind_address="+address)
	p.Stderr.Wait(t, "(forced)")
	awaitPage(t, url+"/readyz", http.StatusOK, "ok")
	c := proxytest.TalkTo(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), s.port))
	c.MustSay(t, "hello")
	return func() { t.Cleanup(p.Hold(t, unix.SYS_RECVFROM, func() { fmt.Fprintln(c.Conn, "knock") })) }
}

// prometheus starts one with the shortened rules, and returns its address.
func (m *monitored) prometheus(t *testing.T, program string) string {
	t.Helper()
	rules, err := os.ReadFile(monitoring + "alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	short := regexp.MustCompile(`(?m)^    for: .*\n`).ReplaceAllString(string(rules), "    for: 3s\n")
	short = strings.Replace(short, "kubeproxy_config_age_seconds > 120", "kubeproxy_config_age_seconds > 15", 1)
	dir := t.TempDir()
	config, err := json.Marshal(map[string]any{ // JSON is YAML
		"global":         map[string]string{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{"alerts.yml"},
		"scrape_configs": []any{map[string]any{"job_name": "kube-proxy-classic", "static_configs": []any{map[string]any{"targets": m.targets}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"alerts.yml": short, "prometheus.yml": string(config)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address, url := operatorsURL(t)
	programtest.Run(t, exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn"))
	awaitPage(t, url+"/-/ready", http.StatusOK, "")
	return url
}

// scraped waits until each node that answers was read twice.
func (m *monitored) scraped(t *testing.T, server string) {
	t.Helper()
	proxytest.Eventually(t, func() bool {
		return len(m.ask(t, server, `count_over_time(kubeproxy_ready[1h]) >= 2`)) == len(m.targets)-1
	}, "each node is read")
}

// ask returns the labels of each series that an expression gives.
func (m *monitored) ask(t *testing.T, server, expr string) (labels []map[string]string) {
	t.Helper()
	status, text := see(t, server+"/api/v1/query?query="+url.QueryEscape(expr))
	var answer struct {
		Data struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d, %v: %s", expr, status, err, text)
	}
	for _, r := range answer.Data.Result {
		labels = append(labels, r.Metric)
	}
	return labels
}

// alerts are the names of all.
func alerts(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(monitoringFile(t, "alerts.yml"), -1) {
		names = append(names, m[1])
	}
	if len(names) < 15 {
		t.Fatalf("found only the alerts %q", names)
	}
	return names
}

// metricsNamed are those in the expressions of rules and dashboards.
func metricsNamed(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, file := range []string{"alerts.yml", "fleet.json", "service.json"} {
		for _, expr := range regexp.MustCompile(`(?m)^ *"?expr"?: (?:\|.*(?:\n {6}.*)+|.*)$`).FindAllString(monitoringFile(t, file), -1) {
			names = append(names, regexp.MustCompile(`\b(?:kubeproxy|process)_\w+`).FindAllString(expr, -1)...)
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) < 30 {
		t.Fatalf("found only the metrics %q", names)
	}
	return names
}

// repeat does something ten times a second until the test ends.
func repeat(t *testing.T, do func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-tick.C:
				do()
			case <-stop:
				tick.Stop()
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
}

// writeRecord puts a record into a directory, in one step.
func writeRecord(t *testing.T, dir, key, value string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(key))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path+".tmp", []byte(value), 0o644), os.Rename(path+".tmp", path)); err != nil {
		t.Fatal(err)
	}
}

func serviceRecord(name string, port uint16, protocol string) string {
	return fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":%q,"port":%d,"protocol":%q}`, name, port, protocol)
}

func endpointsRecord(name string, endpoints ...string) string {
	return fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":%q,"endpoints":["%s"]}`, name, strings.Join(endpoints, `","`))
}

// weightlessRecord is one of an endpoint of weight 0.
func weightlessRecord(name, endpoint string) string {
	return fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":%q,"endpoints":[%q],"annotations":{"kube-proxy/weight":"0"}}`, name, endpoint)
}

// checkedRecord is one of a service with annotations: names and values in turn.
func checkedRecord(name string, port uint16, annotations ...string) string {
	var all []string
	for i := 0; i < len(annotations); i += 2 {
		all = append(all, fmt.Sprintf("%q:%q", annotations[i], annotations[i+1]))
	}
	return fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":%q,"port":%d,"annotations":{%s}}`, name, port, strings.Join(all, ","))
}

func monitoringFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(monitoring + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
