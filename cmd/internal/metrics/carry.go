package metrics

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"kubeproxy/registry"
)

// When a process takes over from another one, its counters go on where those of its predecessor ended. That is done here, for series and
// not for numbers, so that it holds for each counter that there is or will be. Gauges say what is now, and need nothing. The
// metrics of the Go runtime and of the process (go_, process_) are those of this process alone.

// prefix begins the names of our own metrics.
const prefix = "kubeproxy_"

// A carried is the counters and histograms that a predecessor ended with, by name and then by labels.
type carried map[string]*carriedFamily

type carriedFamily struct {
	*dto.MetricFamily                           // without its series
	series            map[string]*carriedSeries // by labels
}

// A carriedSeries is what was counted before.
type carriedSeries struct {
	*dto.Metric
	own float64 // what this process had counted beside it at the last look
}

// counted returns those of our families whose values only grow.
func counted(families []*dto.MetricFamily) []*dto.MetricFamily {
	return slices.DeleteFunc(slices.Clone(families), func(f *dto.MetricFamily) bool {
		return !strings.HasPrefix(f.GetName(), prefix) || f.GetType() != dto.MetricType_COUNTER && f.GetType() != dto.MetricType_HISTOGRAM
	})
}

var _ prometheus.Gatherer = (*Metrics)(nil)

// addTo adds what was carried to what was gathered. A series that has not begun here is told of as it was, as long as there is
// what it is about; else it is forgotten, as it would be without a take-over. So is one that this process has begun anew: what it was about
// has gone and come back.
func (c carried) addTo(families []*dto.MetricFamily) []*dto.MetricFamily {
	there := make(map[subject]bool)
	unseen := maps.Clone(c)
	for _, f := range families {
		for _, s := range f.Metric {
			there[subjectOf(f.GetName(), s)] = true
		}
		delete(unseen, f.GetName())
	}
	for _, f := range unseen {
		families = append(families, &dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type})
	}
	all := families[:0]
	for _, f := range families {
		if before := c[f.GetName()]; before != nil {
			before.addTo(f, there)
		}
		if len(f.Metric) > 0 {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}

func (c *carriedFamily) addTo(f *dto.MetricFamily, there map[subject]bool) {
	begun := make(map[string]*dto.Metric)
	for _, s := range f.Metric {
		begun[seriesKey(s)] = s
	}
	for _, key := range slices.Sorted(maps.Keys(c.series)) {
		s, before := begun[key], c.series[key]
		own := count(s)
		switch {
		case own < before.own || s == nil && !there[subjectOf(c.GetName(), before.Metric)]:
			delete(c.series, key)
		case s == nil:
			f.Metric = append(f.Metric, before.Metric)
		default:
			before.own = own
			add(s, before.Metric)
		}
	}
}

// count is how much a series has counted, of a histogram how often; nil has counted nothing.
func count(s *dto.Metric) float64 {
	return s.GetCounter().GetValue() + float64(s.GetHistogram().GetSampleCount())
}

// add adds what was counted before to a series. Histograms whose buckets are others now begin anew.
func add(s, before *dto.Metric) {
	if s.Counter != nil && before.Counter != nil {
		s.Counter.Value = new(s.Counter.GetValue() + before.Counter.GetValue())
		return
	}
	h, old := s.Histogram, before.Histogram
	if h == nil || old == nil || !slices.Equal(bounds(h), bounds(old)) {
		return
	}
	for i, b := range h.Bucket {
		b.CumulativeCount = new(b.GetCumulativeCount() + old.Bucket[i].GetCumulativeCount())
	}
	h.SampleCount = new(h.GetSampleCount() + old.GetSampleCount())
	h.SampleSum = new(h.GetSampleSum() + old.GetSampleSum())
}

// bounds are those of the buckets. The last one, which has everything, is in the text and not in what a registry gathers.
func bounds(h *dto.Histogram) (all []float64) {
	for _, b := range h.Bucket {
		if !math.IsInf(b.GetUpperBound(), 1) {
			all = append(all, b.GetUpperBound())
		}
	}
	return all
}

// A subject is what a series is about: a port of a service, an endpoint of one, or a key that elects endpoints. What both protocols of a port
// have in common has no protocol.
type subject struct{ service, port, protocol, endpoint, key string }

// subjectOf is what a series of a family is about. Where no label says the protocol, the name of the family may.
func subjectOf(family string, s *dto.Metric) (of subject) {
	switch {
	case strings.HasPrefix(family, prefix+"connections_"):
		of.protocol = registry.TCP.String()
	case strings.HasPrefix(family, prefix+"udp_"):
		of.protocol = registry.UDP.String()
	}
	for _, l := range s.Label {
		switch l.GetName() {
		case "service":
			of.service = l.GetValue()
		case "port_name":
			of.port = l.GetValue()
		case "protocol":
			of.protocol = l.GetValue()
		case "endpoint":
			of.endpoint = l.GetValue()
		case "key":
			of.key = l.GetValue()
		}
	}
	return of
}

// seriesKey makes a key of the labels of a series. The library sorts them by name.
func seriesKey(s *dto.Metric) string {
	var b strings.Builder
	for _, l := range s.Label {
		fmt.Fprintf(&b, "%q%q", l.GetName(), l.GetValue())
	}
	return b.String()
}
