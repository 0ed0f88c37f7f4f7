package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"kubeproxy/registry"
)

// A family is one metric that a collector tells of, with the labels of its series.
type family struct {
	*prometheus.Desc
	kind prometheus.ValueType
}

// A sink is where series go.
type sink chan<- prometheus.Metric

func (s sink) tell(f family, value float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(f.Desc, f.kind, value, labels...)
}

// A series is one of the series of a port of a service. Ten thousand services have many: so those of a port share their labels, which
// [prometheus.NewConstMetric] would make anew for each.
type series struct {
	family family
	value  float64
	labels []*dto.LabelPair // in the order of their names
}

// Desc implements [prometheus.Metric].
func (s *series) Desc() *prometheus.Desc { return s.family.Desc }

// Write implements [prometheus.Metric].
func (s *series) Write(out *dto.Metric) error {
	out.Label = s.labels
	value := s.value // the caller may add to it
	if s.family.kind == prometheus.CounterValue {
		out.Counter = &dto.Counter{Value: &value}
	} else {
		out.Gauge = &dto.Gauge{Value: &value}
	}
	return nil
}

// A portSink is where the series of one port of a service go.
type portSink struct {
	to     sink
	labels []*dto.LabelPair // port_name and service, in this order: that of their names
}

// of returns where the series of a port of a service go.
func (s sink) of(service registry.PortKey) portSink {
	return portSink{s, []*dto.LabelPair{label("port_name", registry.Label(service.Port)), label("service", service.Name.Label())}}
}

// with returns where the series of the port go that have one more label: its name is one between those of the other two, or before them.
func (p portSink) with(more *dto.LabelPair) portSink {
	port, service := p.labels[0], p.labels[1]
	if more.GetName() < port.GetName() {
		return portSink{p.to, []*dto.LabelPair{more, port, service}}
	}
	return portSink{p.to, []*dto.LabelPair{port, more, service}}
}

func (p portSink) tell(f family, value float64) { p.to <- &series{f, value, p.labels} }

// tellAny leaves out what did not happen: most reasons never come up, and ten thousand services have
// many ports.
func (p portSink) tellAny(f family, n uint64) {
	if n > 0 {
		p.tell(f, float64(n))
	}
}

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

// labelsOf makes the labels of values that many series have.
func labelsOf[T any](name string, values []T, text func(T) string) []*dto.LabelPair {
	labels := make([]*dto.LabelPair, len(values))
	for i, v := range values {
		labels[i] = label(name, text(v))
	}
	return labels
}

// The buckets of the histograms, in seconds. A dial over a LAN takes well below a millisecond, one that
// is not answered as long as it may; a connection lasts anything from a moment to days.
var (
	dialBuckets     = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
	durationBuckets = []float64{.001, .01, .1, 1, 10, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600}
	latencyBuckets  = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
)
