package metrics

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// New returns metrics in which nothing has happened yet, of a program of this version and source revision, with series for the endpoints of the
// services that are chosen.
func New(version, revision string, choice Choice) *Metrics {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		Stopwatch: Stopwatch{
			apply: histogram("kubeproxy_sync_proxy_rules_duration_seconds",
				"Time it took to apply one batch of changes: rotations set, ports opened and closed.", latencyBuckets),
			latency: histogram("kubeproxy_network_programming_duration_seconds",
				"Time from the receipt of a change from etcd until it was applied; of the oldest change in each batch.", latencyBuckets),
			services: counter("kubeproxy_sync_proxy_rules_service_changes_total",
				"Changes of services that were applied."),
			endpoints: counter("kubeproxy_sync_proxy_rules_endpoint_changes_total",
				"Changes of endpoints that were applied; each change of the endpoints of one service counts once."),
		},
		dial: histogram("kubeproxy_dial_duration_seconds",
			"Time from the acceptance of a TCP client until an endpoint was reached, or none, all attempts taken together.", dialBuckets),
		duration: [2]prometheus.Histogram{
			registry.TCP: histogram("kubeproxy_connection_duration_seconds",
				"How long TCP connections lasted that have reached an endpoint and ended.", durationBuckets),
			registry.UDP: histogram("kubeproxy_udp_session_duration_seconds",
				"How long UDP sessions lasted that have had an endpoint and ended.", durationBuckets),
		},
		probes: make(map[string]*prometheus.CounterVec),
		choice: choice,
	}
	m.chosen = newChosen(m.registry, choice.Named)
	for _, page := range []string{"healthz", "livez", "readyz"} {
		m.probes[page] = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeproxy_proxy_" + page + "_total",
			Help: "Answers given at /" + page + ", by HTTP status.",
		}, []string{"code"})
		m.registry.MustRegister(m.probes[page])
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubeproxy_build_info",
		Help: "Always 1; the labels say which program this is.",
	}, []string{"version", "revision", "goversion"})
	build.WithLabelValues(registry.Label(version), registry.Label(revision), runtime.Version()).Set(1)
	m.registry.MustRegister(build, m.apply, m.latency, m.services, m.endpoints, m.dial, m.duration[registry.TCP], m.duration[registry.UDP],
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.page = promhttp.HandlerFor(m, promhttp.HandlerOpts{
		ErrorLog:      errorLog{},
		ErrorHandling: promhttp.ContinueOnError, // one metric that cannot be told is no reason to tell none
	})
	return m
}

// Ended notes how long a connection or a session lasted. It is for [proxy.Config].Ended, and takes no lock.
func (m *Metrics) Ended(e traffic.Ending) {
	if e.Listener.Protocol == registry.TCP && e.Attempts > 0 {
		m.dial.Observe(e.Dialled.Seconds())
	}
	if e.Endpoint != (registry.Addr{}) {
		m.duration[e.Listener.Protocol].Observe(e.Duration.Seconds())
	}
	if c, ok := m.chosen[e.Service.Name]; ok {
		c.ended(&e)
	}
}

// Probed notes that one of the pages healthz, livez and readyz was answered.
func (m *Metrics) Probed(page, code string) { m.probes[page].WithLabelValues(code).Inc() }

// Watch has everything else read from the node at each scrape. It is called once.
func (m *Metrics) Watch(n Node) {
	m.registry.MustRegister(collector{n, m})
}

// ServeHTTP answers with all metrics.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.page.ServeHTTP(w, r) }

// errorLog takes what the Prometheus library complains of.
type errorLog struct{}

func (errorLog) Println(words ...any) { glog.Errorln(append([]any{"metrics:"}, words...)...) }

// WriteCounters writes what a successor has to begin with, in Prometheus' text format.
func (m *Metrics) WriteCounters(w io.Writer) error {
	families, err := m.Gather()
	if err != nil {
		return err
	}
	for _, f := range counted(families) {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return err
		}
	}
	return nil
}

// ReadCounters has every counter go on from what [Metrics.WriteCounters] of a predecessor has written.
func (m *Metrics) ReadCounters(r io.Reader) error {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return fmt.Errorf("the counters of the predecessor: %w", err)
	}
	all := make(carried)
	for _, f := range counted(slices.Collect(maps.Values(families))) {
		series := make(map[string]*carriedSeries)
		for _, s := range f.Metric {
			series[seriesKey(s)] = &carriedSeries{Metric: s}
		}
		all[f.GetName()] = &carriedFamily{&dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type}, series}
	}
	m.carrying.Lock()
	defer m.carrying.Unlock()
	m.carried = all
	return nil
}

// Gather implements [prometheus.Gatherer]: what happened in this process, and before it. One call waits for another: what was gathered first is
// looked at first, or a series would seem to begin anew.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	m.carrying.Lock()
	defer m.carrying.Unlock()
	families, err := m.registry.Gather()
	if len(m.carried) == 0 {
		return families, err
	}
	return m.carried.addTo(families), err
}
