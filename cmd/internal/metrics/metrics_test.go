package metrics

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"kubeproxy/config"
	"kubeproxy/proxy"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

var update = flag.Bool("update", false, "write testdata/metrics.golden anew")

// A site stands for the rooms that metrics are read from.
type site struct {
	status    config.Status
	pending   config.Pending
	ports     [2]proxy.PortCount
	totals    []traffic.Totals
	limits    []traffic.Limit
	rotations []rotation.Status
	endpoints []rotation.EndpointStatus
	notReady  error
}

func (s *site) PortCounts() [2]proxy.PortCount { return s.ports }

func (s *site) EachTotals() iter.Seq[traffic.Totals] { return slices.Values(s.totals) }

func (s *site) Limits() []traffic.Limit { return s.limits }
func (s *site) AcceptPauses() uint64    { return 9 }
func (s *site) KernelStatus() *kernel.Status {
	return &kernel.Status{Ports: []int{kernel.Carried: 4, kernel.NotChecked: 2}}
}
func (s *site) TurnTimes() traffic.TurnTimes {
	return traffic.TurnTimes{Buckets: [15]uint64{5, 0, 1, 14: 2}, Sum: 13 * time.Second, Longest: 7 * time.Second}
}

type fakeLog struct{}

func (fakeLog) Written() uint64 { return 11 }
func (fakeLog) Dropped() uint64 { return 2 }

// watch gives the metrics of the site.
func (s *site) watch() *Metrics {
	return s.watchChosen(Choice{All: true, Named: []registry.Name{key("web", "").Name}})
}

// watchChosen gives the metrics of the site, with those of the endpoints of some services.
func (s *site) watchChosen(choice Choice) *Metrics {
	m := New("v1.2.3", "cafe", choice)
	m.Watch(Node{
		Ready:     func() error { return s.notReady },
		Live:      func() error { return nil },
		ConfigAge: func() time.Duration { return 1500 * time.Millisecond },
		Stale:     func() bool { return true },
		Status:    func() config.Status { return s.status },
		Lost:      func() (all, some int) { return 7, 3 },
		Pending:   func() config.Pending { return s.pending },
		Proxier:   s,
		Rotation: func(of registry.PortKey) (rotation.Status, bool) {
			i := slices.IndexFunc(s.rotations, func(r rotation.Status) bool { return r.Service == of })
			if i < 0 {
				return rotation.Status{}, false
			}
			return s.rotations[i], true
		},
		FailedTakeovers: func() uint64 { return 3 },
		UpgradeFailure:  func() (time.Time, error) { return time.Now(), errors.New("it ended") },
		Drained:         func() bool { return true },
		ElectedBy:       func(registry.Name) string { return "/lock" },
		RoutesMissing:   func() int { return 1 },
		RoutesRestored:  func() uint64 { return 12 },
		HealthNotOpen:   func() int { return 6 },
		Overrides:       func() int { return 2 },
		Endpoints:       func() []rotation.EndpointStatus { return s.endpoints },
		EndpointsOf: func(name registry.Name) (of []rotation.EndpointStatus) {
			for _, e := range s.endpoints {
				if e.Service.Name == name {
					of = append(of, e)
				}
			}
			return of
		},
		Checks: func() checks.Counts {
			return checks.Counts{Targets: 10, Failing: 2, Unknown: 1, Overdue: 4, Passed: 12, Failed: 13}
		},
		Log: fakeLog{},
	})
	return m
}

func key(name, port string) registry.PortKey {
	return registry.PortKey{Name: registry.Name{Namespace: "default", Name: name}, Port: port}
}

// busySite is one where everything has happened that can be counted.
func busySite() *site {
	s := &site{
		status: config.Status{Ends: []config.End{{Cause: "broken", Count: 2}}, Revision: 42, Connected: true, Sessions: 3, Resyncs: 4, Divergences: 5, Services: 6, Endpoints: 7, Rejected: 8, Elections: []config.Election{
			{Key: "/service/pg/leader", Holder: "m1", Count: 14, Paused: true, LeftOut: 3, Unusable: 2}, {Key: "/service/pg/leader", Count: 99}, {Key: "/lock", Count: 5}, {Key: "/asked/leader", Holder: "m1", Unconfirmed: true}}},
		pending: config.Pending{Services: 1, Endpoints: 2},
		ports:   [2]proxy.PortCount{registry.TCP: {Open: 1, Waiting: 2, Refused: 1}, registry.UDP: {Unopened: 1}},
		limits:  []traffic.Limit{{Name: "descriptors", Used: 3, Max: 1000}},
		endpoints: []rotation.EndpointStatus{{Service: key("web", ""), Addr: registry.Addr{IP: netip.MustParseAddrPort("10.1.2.3:80")},
			Active: 1, Connections: 2, Failures: 3, EjectedUntil: time.Now().Add(time.Hour)}},
	}
	for _, protocol := range []registry.Protocol{registry.TCP, registry.UDP} {
		t := traffic.Totals{Service: key(map[registry.Protocol]string{registry.TCP: "web", registry.UDP: "dns"}[protocol], "p"), Protocol: protocol,
			Active: 1, Begun: 9, Sent: 2, Received: 3, DialFailures: 4, Carried: 7}
		for i := range t.Ended {
			t.Ended[i] = uint64(i + 1)
		}
		if protocol == registry.UDP {
			t.SentDatagrams, t.ReceivedDatagrams, t.MovedSessions = 5, 6, 7
			for i := range t.Dropped {
				t.Dropped[i] = uint64(i + 1)
			}
		}
		s.totals = append(s.totals, t)
		s.rotations = append(s.rotations, rotation.Status{Service: t.Service, Endpoints: 5, Failing: 2, Condition: health.ChecksFail, Near: 2, Spilling: true, Zones: [2]uint64{40, 2}})
	}
	for _, port := range []string{"a", "b"} { // of one service, whose key nobody holds
		s.totals = append(s.totals, traffic.Totals{Service: key("locked", port)})
		s.rotations = append(s.rotations, rotation.Status{Service: key("locked", port), Condition: health.NoEndpoints})
	}
	return s
}

// happen notes one of everything.
func happen(m *Metrics) {
	m.Begin().OnUpdate(registry.Batch{})
	m.End().OnUpdate(registry.Batch{Oldest: time.Now()})
	for _, protocol := range []registry.Protocol{registry.TCP, registry.UDP} {
		m.Ended(traffic.Ending{Listener: registry.ListenerID{Protocol: protocol}, Endpoint: registry.Addr{Host: "a"}, Attempts: 1, Duration: time.Second, Dialled: time.Millisecond})
	}
	for _, page := range []string{"healthz", "livez", "readyz"} {
		m.Probed(page, "200")
	}
}

func scrape(t testing.TB, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// TestNamesTypesAndLabelsDoNotChangeByAccident: other people's dashboards and alerts know them. The list
// has no go_ and process_ metrics, which are the Prometheus library's.
func TestNamesTypesAndLabelsDoNotChangeByAccident(t *testing.T) {
	m := busySite().watch()
	happen(m)
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_") {
			continue
		}
		fmt.Fprintf(&list, "%s %s {%s}\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels(f), ","))
	}
	const golden = "testdata/metrics.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(list.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), list.String()); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
}

func labels(f *dto.MetricFamily) []string {
	var names []string
	for _, metric := range f.Metric {
		for _, label := range metric.Label {
			if !slices.Contains(names, label.GetName()) {
				names = append(names, label.GetName())
			}
		}
	}
	return names
}

func TestPrometheusFindsNothingToComplainOf(t *testing.T) {
	m := busySite().watch()
	happen(m)
	problems, err := promlint.New(strings.NewReader(scrape(t, m))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestWhatIsToldIsWhatHappened: some of the values, each from another room.
func TestWhatIsToldIsWhatHappened(t *testing.T) {
	m := busySite().watch()
	happen(m)
	text := scrape(t, m)
	for _, line := range []string{
		`kubeproxy_build_info{goversion="go1.`,
		`kubeproxy_ready 1`,
		`kubeproxy_config_age_seconds 1.5`,
		`kubeproxy_config_stale 1`,
		`kubeproxy_live 1`,
		`kubeproxy_connections_total{port_name="p",service="default/web"} 9`,
		`kubeproxy_udp_sessions_total{port_name="p",service="default/dns"} 9`,
		`kubeproxy_kernel_connections_total{port_name="p",protocol="tcp",service="default/web"} 7`,
		`kubeproxy_kernel_ports{reason="carried"} 4`,
		`kubeproxy_kernel_ports{reason="not-checked"} 2`,
		`kubeproxy_service_endpoints{port_name="p",service="default/web"} 5`,
		`kubeproxy_service_endpoints_failing{port_name="p",service="default/dns"} 2`,
		`kubeproxy_service_condition{condition="checks_fail",port_name="p",service="default/dns"} 1`,
		`kubeproxy_takeovers_failed_total 3`,
		`kubeproxy_reload_failed 1`,
		`kubeproxy_node_drained 1`,
		`kubeproxy_overrides 2`,
		`kubeproxy_service_routes_missing 1`,
		`kubeproxy_service_routes_restored_total 12`,
		`kubeproxy_overdue_checks 4`,
		`kubeproxy_etcd_revision 42`,
		`kubeproxy_election_held{key="/service/pg/leader"} 1`,
		`kubeproxy_election_held{key="/lock"} 0`,
		`kubeproxy_election_held{key="/asked/leader"} 0`,
		`kubeproxy_election_changes_total{key="/service/pg/leader"} 14`,
		`kubeproxy_election_paused{key="/service/pg/leader"} 1`,
		`kubeproxy_election_paused{key="/lock"} 0`,
		`kubeproxy_election_unserved{key="/lock"} 1`,
		`kubeproxy_election_unserved{key="/asked/leader"} 0`,
		`kubeproxy_election_left_out{key="/service/pg/leader"} 3`,
		`kubeproxy_election_rejected{key="/service/pg/leader"} 2`,
		`kubeproxy_objects{kind="endpoints"} 7`,
		`kubeproxy_lost_services{left="none"} 7`,
		`kubeproxy_lost_services{left="some"} 3`,
		`kubeproxy_sync_proxy_rules_endpoint_changes_pending 2`,
		`kubeproxy_listeners{protocol="tcp"} 1`,
		`kubeproxy_listeners{protocol="udp"} 0`,
		`kubeproxy_ports_not_open{protocol="udp"} 1`,
		`kubeproxy_ports_not_open{protocol="tcp"} 0`,
		`kubeproxy_ports_refused{protocol="tcp"} 1`,
		`kubeproxy_health_ports_not_open 6`,
		`kubeproxy_claims_waiting{protocol="tcp"} 2`,
		`kubeproxy_limit_max{limit="descriptors"} 1000`,
		`kubeproxy_accept_pauses_total 9`,
		`kubeproxy_loop_turn_seconds_bucket{le="0.0001"} 5`,
		`kubeproxy_loop_turn_seconds_bucket{le="0.0005"} 6`,
		`kubeproxy_loop_turn_seconds_bucket{le="5"} 6`,
		`kubeproxy_loop_turn_seconds_bucket{le="+Inf"} 8`,
		`kubeproxy_loop_turn_seconds_sum 13`,
		`kubeproxy_loop_longest_turn_seconds 7`,
		`kubeproxy_connections_ended_total{port_name="p",reason="client_finished",service="default/web"} 1`,
		`kubeproxy_udp_sessions_ended_total{port_name="p",reason="shutdown",service="default/dns"} ` + fmt.Sprint(len(traffic.Reasons())),
		`kubeproxy_udp_dropped_datagrams_total{port_name="p",reason="no_endpoints",service="default/dns"} 1`,
		`kubeproxy_sent_bytes_total{port_name="p",protocol="tcp",service="default/web"} 2`,
		`kubeproxy_endpoint_passed_over{endpoint="10.1.2.3:80",port_name="",service="default/web"} 1`,
		`kubeproxy_dial_duration_seconds_bucket{le="0.001"} 1`,
		`kubeproxy_connection_duration_seconds_count 1`,
		`kubeproxy_udp_session_duration_seconds_sum 1`,
		`kubeproxy_network_programming_duration_seconds_count 1`,
		`kubeproxy_proxy_healthz_total{code="200"} 1`,
		`kubeproxy_connection_log_dropped_lines_total 2`,
		`process_open_fds `,
		`go_goroutines `,
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("it is not said that %s", line)
		}
	}
}

// TestClientsTurnedAwayHaveNoDuration: a connection that never was would pull the quantiles down.
func TestClientsTurnedAwayHaveNoDuration(t *testing.T) {
	m := busySite().watch()
	m.Ended(traffic.Ending{Listener: registry.ListenerID{Protocol: registry.TCP}, Reason: traffic.ServiceLimit})
	m.Ended(traffic.Ending{Listener: registry.ListenerID{Protocol: registry.TCP}, Reason: traffic.DialFailed, Attempts: 3, Dialled: time.Second})
	text := scrape(t, m)
	for _, line := range []string{"kubeproxy_connection_duration_seconds_count 0", "kubeproxy_dial_duration_seconds_count 1"} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("it is not said that %s", line)
		}
	}
}

// TestSeriesGoWithTheirService, and what did not happen has none.
func TestSeriesGoWithTheirService(t *testing.T) {
	s := busySite()
	s.totals[0].Ended = traffic.Totals{}.Ended
	m := s.watchChosen(Choice{All: true})
	if text := scrape(t, m); strings.Contains(text, "kubeproxy_connections_ended_total") || !strings.Contains(text, "default/web") {
		t.Error("there are series of what never happened, or none of the service")
	}
	s.totals, s.endpoints = nil, nil
	if text := scrape(t, m); strings.Contains(text, "default/") {
		t.Error("there are series of services that are gone")
	}
}

// TestWhatStrangersNameBreaksNoScrape: control characters, markup, bytes that are no text, and a name of a
// megabyte. All services are told of.
func TestWhatStrangersNameBreaksNoScrape(t *testing.T) {
	s := busySite()
	s.totals = nil
	names := []string{"a\nkubeproxy_fake 1\n", "<script>", "\x1b[31m", `"} 1`, `\`, "\xff", "\xfe", strings.Repeat("x", 1<<20)}
	for _, name := range names {
		s.totals = append(s.totals, traffic.Totals{Service: key(name, name)})
	}
	m := s.watch()
	text := scrape(t, m)
	if n := strings.Count(text, "\nkubeproxy_connections_active{"); n != len(names) {
		t.Errorf("%d services are told of, want %d:\n%s", n, len(names), text)
	}
	if strings.Contains(text, "\nkubeproxy_fake") || !utf8.ValidString(text) || strings.Contains(text, "\x1b") || len(text) > 100_000 {
		t.Errorf("a name is told as it is (%d bytes)", len(text))
	}
	if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// TestScrapesWhileEverythingHappens is for the race detector.
func TestScrapesWhileEverythingHappens(t *testing.T) {
	m := busySite().watch()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				happen(m)
				scrape(t, m)
			}
		})
	}
	all.Wait()
}

// TestOldestIsOfTheBatchInHand.
func TestOldestIsOfTheBatchInHand(t *testing.T) {
	m := New("", "", Choice{})
	at := time.Now().Add(-time.Minute)
	batch := registry.Batch{Oldest: at}
	m.Begin().OnUpdate(batch)
	if got := m.Oldest(); !got.Equal(at) {
		t.Errorf("while it is applied: %v, want %v", got, at)
	}
	m.End().OnUpdate(batch)
	if got := m.Oldest(); !got.IsZero() {
		t.Errorf("after that: %v, want none", got)
	}
}

// BenchmarkScrape has ten thousand services, with a port each, of which one in a hundred had trouble.
func BenchmarkScrape(b *testing.B) {
	s := busySite()
	s.totals, s.rotations, s.endpoints = nil, nil, nil
	for i := range 10_000 {
		t := traffic.Totals{Service: key(fmt.Sprintf("service-%05d", i), "http"), Active: 3, Sent: 1e9 + uint64(i), Received: 1e10 + uint64(i)}
		t.Ended[traffic.ClientFinished], t.Ended[traffic.EndpointFinished] = 1000, uint64(i)
		if i%100 == 0 {
			t.Ended[traffic.DialFailed], t.DialFailures = 7, 9
		}
		s.totals = append(s.totals, t)
		s.rotations = append(s.rotations, rotation.Status{Service: t.Service, Endpoints: 10})
		s.ports[registry.TCP].Open++
	}
	m := s.watch()
	server := httptest.NewServer(m)
	defer server.Close()
	for _, encoding := range []string{"identity", "gzip"} {
		b.Run(encoding, func(b *testing.B) {
			var size int64
			for b.Loop() {
				r, err := http.NewRequest(http.MethodGet, server.URL, nil)
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Accept-Encoding", encoding)
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				if size, err = io.Copy(io.Discard, answer.Body); err != nil {
					b.Fatal(err)
				}
				answer.Body.Close()
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}

// BenchmarkEnded is what a connection pays at its end.
func BenchmarkEnded(b *testing.B) {
	m := New("", "", Choice{})
	e := traffic.Ending{Endpoint: registry.Addr{Host: "a"}, Attempts: 1, Duration: time.Second, Dialled: time.Millisecond}
	b.ReportAllocs()
	for b.Loop() {
		m.Ended(e)
	}
}

// TestOnlyChosenServicesHaveSeriesOfTheirEndpoints: a node with ten thousand services has them for those that somebody looks at.
func TestOnlyChosenServicesHaveSeriesOfTheirEndpoints(t *testing.T) {
	s := busySite()
	s.endpoints = append(s.endpoints, rotation.EndpointStatus{Service: key("db", ""), Addr: registry.Addr{IP: netip.MustParseAddrPort("10.1.2.4:80")}, Connections: 5})
	m := s.watchChosen(Choice{Named: []registry.Name{key("db", "").Name}})
	for _, name := range []string{"db", "web"} {
		m.Ended(traffic.Ending{Service: key(name, "p"), Endpoint: registry.Addr{Host: "a"}, Attempts: 1, Duration: time.Second, Dialled: time.Millisecond})
	}
	text := scrape(t, m)
	for _, want := range []string{`kubeproxy_endpoint_connections_total{endpoint="10.1.2.4:80",port_name="",service="default/db"} 5`,
		`kubeproxy_service_dial_duration_seconds_count{service="default/db"} 1`, `kubeproxy_service_connection_duration_seconds_sum{service="default/db"} 1`,
		`kubeproxy_service_udp_session_duration_seconds_count{service="default/db"} 0`, `kubeproxy_dial_duration_seconds_count 2`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no line says %s", want)
		}
	}
	for line := range strings.Lines(text) {
		if (strings.HasPrefix(line, "kubeproxy_endpoint_") || strings.HasPrefix(line, "kubeproxy_service_dial")) && strings.Contains(line, "web") {
			t.Errorf("a service that is not chosen has %s", line)
		}
	}
	if text := scrape(t, s.watchChosen(Choice{})); strings.Contains(text, "kubeproxy_endpoint_") {
		t.Error("without a choice there are series of endpoints")
	}
}
