//go:build linux

package measure

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Get asks for a page over HTTP. No connection stays behind that would count among a process's descriptors.
func Get(ctx context.Context, at netip.AddrPort, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%v%s", at, path), nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000)) // what there is of it
		answer.Body.Close()
		return nil, fmt.Errorf("%s: %s: %s", request.URL, answer.Status, text)
	}
	return answer.Body, nil
}

// Page asks for the whole text of a page.
func Page(ctx context.Context, at netip.AddrPort, path string) ([]byte, error) {
	body, err := Get(ctx, at, path)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// Metrics are what a process says of itself, in the text format of Prometheus.
type Metrics map[string]*dto.MetricFamily

// Scrape asks for metrics.
func Scrape(ctx context.Context, at netip.AddrPort) (Metrics, error) {
	body, err := Get(ctx, at, "/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return ParseMetrics(body)
}

// ParseMetrics reads the text format of Prometheus.
func ParseMetrics(text io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(text)
}

// Sum adds up the series of a metric that have all of these labels, given in turn by name and value.
func (m Metrics) Sum(name string, labels ...string) (total float64) {
	for _, series := range m[name].GetMetric() {
		if has(series, labels) {
			total += series.GetCounter().GetValue() + series.GetGauge().GetValue() + series.GetUntyped().GetValue()
		}
	}
	return total
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

func has(series *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		found := false
		for _, l := range series.GetLabel() {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}
