package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Choice is the services with series for each endpoint. Those that are named have histograms of their own as well: a histogram has some twenty
// series, which ten thousand services cannot have.
type Choice struct {
	All   bool
	Named []registry.Name
}

// A chosen service has histograms of its own.
type chosen struct {
	dial     prometheus.Observer
	duration [2]prometheus.Observer // by protocol
}

// newChosen makes the histograms of named services, and registers them.
func newChosen(to prometheus.Registerer, named []registry.Name) map[registry.Name]chosen {
	if len(named) == 0 {
		return nil
	}
	vec := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubeproxy_service_" + name, Help: help, Buckets: buckets}, []string{"service"})
		to.MustRegister(v)
		return v
	}
	dial := vec("dial_duration_seconds", "As kubeproxy_dial_duration_seconds, of services that -metrics_endpoints names.", dialBuckets)
	duration := [2]*prometheus.HistogramVec{
		registry.TCP: vec("connection_duration_seconds", "As kubeproxy_connection_duration_seconds, of services that -metrics_endpoints names.", durationBuckets),
		registry.UDP: vec("udp_session_duration_seconds", "As kubeproxy_udp_session_duration_seconds, of services that -metrics_endpoints names.", durationBuckets),
	}
	all := make(map[registry.Name]chosen, len(named))
	for _, name := range named {
		of := chosen{dial: dial.WithLabelValues(name.Label())}
		for p := range duration {
			of.duration[p] = duration[p].WithLabelValues(name.Label())
		}
		all[name] = of
	}
	return all
}

// ended notes how long a connection or a session lasted, as [Metrics.Ended] does.
func (c *chosen) ended(e *traffic.Ending) {
	if e.Listener.Protocol == registry.TCP && e.Attempts > 0 {
		c.dial.Observe(e.Dialled.Seconds())
	}
	if e.Endpoint != (registry.Addr{}) {
		c.duration[e.Listener.Protocol].Observe(e.Duration.Seconds())
	}
}
