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
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%v/metrics", netip.AddrPortFrom(p.host, metricsPort)), nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return parseMetrics(answer.Body)
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
