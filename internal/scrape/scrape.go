// Package scrape reads the metrics that a process offers in the text format of Prometheus, for tests and measurements.
package scrape

import (
	"fmt"
	"io"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are those of one page, by name.
type Metrics map[string]*dto.MetricFamily

// Parse reads a page.
func Parse(page io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(page)
}

// Sum adds up the series of a metric that have all of these labels, given in turn by name and value. A value that ends in * stands for
// all that begin with what precedes it. The sum of a metric that is not there is 0.
func (m Metrics) Sum(name string, labels ...string) (total float64) {
	for _, n := range m.SumBy("", name, labels...) {
		total += n
	}
	return total
}

// SumBy does the same for each value of the label by. A series without that label counts as one whose value is empty.
func (m Metrics) SumBy(by, name string, labels ...string) map[string]float64 {
	sums := make(map[string]float64)
	for _, series := range m[name].GetMetric() {
		if own := labelsOf(series); matches(own, labels) {
			sums[own[by]] += series.GetCounter().GetValue() + series.GetGauge().GetValue() + series.GetUntyped().GetValue()
		}
	}
	return sums
}

// Must is Sum for metrics that have to be there.
func (m Metrics) Must(names ...string) ([]float64, error) {
	var sums []float64
	for _, name := range names {
		if m[name] == nil {
			return nil, fmt.Errorf("there is no metric %s", name)
		}
		sums = append(sums, m.Sum(name))
	}
	return sums, nil
}

func labelsOf(series *dto.Metric) map[string]string {
	labels := make(map[string]string)
	for _, l := range series.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// matches reports whether a series has all wanted labels.
func matches(own map[string]string, wanted []string) bool {
	for pair := range slices.Chunk(wanted, 2) {
		value, has := own[pair[0]]
		prefix, isPrefix := strings.CutSuffix(pair[1], "*")
		if !has || isPrefix && !strings.HasPrefix(value, prefix) || !isPrefix && value != pair[1] {
			return false
		}
	}
	return true
}
