//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// metricsPort is where every kube-proxy of ours tells its metrics.
const metricsPort = 10249

// A told is what one kube-proxy has told of itself: a number for each series, as /metrics spells it.
type told map[string]float64

// ask has a kube-proxy tell its metrics. No connection stays behind that would count among its descriptors.
func (p *proxy) ask(ctx context.Context) (told, error) {
	answer, err := p.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	return parseMetrics(answer)
}

// collect has the process collect its garbage, which it does by itself within two minutes. It must have been
// started with -profiling.
func (p *proxy) collect(ctx context.Context) error {
	answer, err := p.get(ctx, "/debug/pprof/heap?gc=1")
	if err != nil {
		return err
	}
	defer answer.Close()
	_, err = io.Copy(io.Discard, answer)
	return err
}

// get asks for a path of what operators see.
func (p *proxy) get(ctx context.Context, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%v%s", netip.AddrPortFrom(p.host, metricsPort), path), nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, fmt.Errorf("%s: %s", request.URL, answer.Status)
	}
	return answer.Body, nil
}

// parseMetrics reads the text format of Prometheus, as far as we need it: a series and its value on a line.
func parseMetrics(text io.Reader) (told, error) {
	all := make(told)
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		end := strings.LastIndexByte(line, ' ')
		if end < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		value, err := strconv.ParseFloat(line[end+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %q: %w", line, err)
		}
		all[line[:end]] = value
	}
	return all, lines.Err()
}

// sum adds up the series of a metric that have a label, such as name="value"; all of them if it is empty.
func (t told) sum(name, label string) (total float64) {
	for series, value := range t {
		if metric, labels, _ := strings.Cut(series, "{"); metric == name && strings.Contains(labels, label) {
			total += value
		}
	}
	return total
}
